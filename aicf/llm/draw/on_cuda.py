"""The kernel of `aicf.draw` for GPUs, in CUDA C++: a block for each row finds the least weight that is kept, digit by
digit.

A digit is 8 bits, and one pass over the weights sums what has each of its values. Sums are of integers, so the order in
which threads add them does not matter.
"""

from __future__ import annotations

THREADS = 1024

SOURCE = r"""
constexpr int THREADS = 1024, WARPS = THREADS / 32, DIGIT = 8, VALUES = 1 << DIGIT;
constexpr unsigned ALL = 0xffffffffu;
typedef long long i64;
typedef unsigned long long u64;

__shared__ u64 sums[VALUES];  // by the value of a digit
__shared__ i64 parts[WARPS];
__shared__ i64 shared_number;
__shared__ int shared_digit;

__device__ i64 warp_sum(i64 value) {
  for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(ALL, value, step);
  return value;
}

__device__ int warp_max(int value) {
  for (int step = 16; step; step >>= 1) value = max(value, __shfl_xor_sync(ALL, value, step));
  return value;
}

// The sum of lower lanes.
__device__ i64 warp_before(i64 value) {
  i64 total = value;
  for (int step = 1; step < 32; step <<= 1) {
    i64 lower = __shfl_up_sync(ALL, total, step);
    if ((threadIdx.x & 31) >= step) total += lower;
  }
  return total - value;
}

__device__ i64 block_sum(i64 value) {
  value = warp_sum(value);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = value;
  __syncthreads();
  return warp_sum(parts[threadIdx.x & 31]);
}

__device__ i64 sum_from(const int* weights, i64 start, i64 stop, i64 step, int least) {
  i64 total = 0;
  for (i64 i = start; i < stop; i += step) total += weights[i] >= least ? weights[i] : 0;
  return total;
}

// By the first warp: the largest value of the digit from which the sums reach `needed`, with `above` from larger
// digits; 0 if none does.
__device__ void find_digit(i64 above, double needed) {
  int lane = threadIdx.x & 31, first = VALUES - VALUES / 32 * (lane + 1);  // lane 0 has the largest values
  i64 own = 0;
  for (int value = first; value < first + VALUES / 32; ++value) own += sums[value];
  i64 before = above + warp_before(own);
  unsigned reached = __ballot_sync(ALL, before + own >= needed);
  if (!reached ? lane == 31 : lane == __ffs(reached) - 1) {
    int value = first + VALUES / 32 - 1;
    while (value > first && before + (i64)sums[value] < needed) before += sums[value--];
    shared_digit = value;
    shared_number = before;
  }
}

// The largest number such that the weights that reach it, and `floor`, have the sum, or the count, `needed`.
__device__ int least_of(const int* weights, i64 count, int floor, double needed, bool is_sum) {
  int least = 0;
  i64 above = 0;
  for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
    for (int value = threadIdx.x; value < VALUES; value += THREADS) sums[value] = 0;
    __syncthreads();
    for (i64 i = threadIdx.x; i < count; i += THREADS) {
      int weight = weights[i], digit = (weight >> shift) & (VALUES - 1);
      // What has the digit 0 decides nothing, and most weights are small.
      if (weight >= floor && digit && (i64(weight) >> (shift + DIGIT)) == (i64(least) >> (shift + DIGIT)))
        atomicAdd(&sums[digit], is_sum ? u64(weight) : u64(1));
    }
    __syncthreads();
    if (threadIdx.x < 32) find_digit(above, needed);
    __syncthreads();
    least |= shared_digit << shift;
    above = shared_number;
    __syncthreads();
  }
  return max(least, floor);
}

__device__ int largest(const int* weights, i64 count) {
  int top = 0;
  for (i64 i = threadIdx.x; i < count; i += THREADS) top = max(top, weights[i]);
  top = warp_max(top);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = top;
  __syncthreads();
  return warp_max(int(parts[threadIdx.x & 31]));
}

// By one warp: in which of 32 neighbouring parts of a range the sum of the kept weights goes above `before`, which
// becomes what is left of it there. -1 if it never does.
__device__ int part_after(i64 sum, i64& before) {
  i64 lower = warp_before(sum);
  unsigned above = __ballot_sync(ALL, lower + sum > before);
  int part = above ? __ffs(above) - 1 : -1;
  before -= __shfl_sync(ALL, lower, part & 31);
  return part;
}

extern "C" __global__ void __launch_bounds__(THREADS) draw(const int* weights, const double* uniform, const i64* top_k,
    const float* top_p, const float* min_p, i64* drawn, i64 count) {
  i64 row = blockIdx.x;
  weights += row * count, uniform += row, top_k += row, top_p += row, min_p += row, drawn += row;
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, least = 1;
  if (0 < top_k[0] && top_k[0] < count) least = least_of(weights, count, least, double(top_k[0]), false);
  if (top_p[0] < 1) {
    i64 total = block_sum(sum_from(weights, threadIdx.x, count, THREADS, least));
    least = least_of(weights, count, least, fmax(double(top_p[0]) * double(total), 1.0), true);
  }
  if (min_p[0] > 0) least = max(least, int(ceil(double(min_p[0]) * double(largest(weights, count)))));

  // The range of a warp, then of a lane of that warp, then its weights one by one.
  i64 range = (count + THREADS - 1) / THREADS * 32, start = warp * range;
  i64 own = warp_sum(sum_from(weights, start + lane, min(start + range, count), 32, least));
  __syncthreads();
  if (lane == 0) parts[warp] = own;
  __syncthreads();
  if (warp != 0) return;
  i64 sum = parts[lane];
  i64 before = i64(uniform[0] * double(warp_sum(sum)));
  int part = part_after(sum, before);
  if (part < 0) {
    if (lane == 0) drawn[0] = -1;
    return;
  }
  i64 size = range / 32, first = part * range + lane * size;
  int chosen = part_after(sum_from(weights, first, min(first + size, count), 1, least), before);
  if (lane != chosen) return;
  i64 index = first;
  for (i64 passed = 0;; ++index) {
    if (weights[index] >= least) passed += weights[index];
    if (passed > before) break;
  }
  drawn[0] = index;
}
"""

"""The kernel of `aicf.draw` for GPUs, in CUDA C++: a cluster of blocks for each row finds the least weight that is
kept, digit by digit.

A digit is 8 bits, and one pass over the weights sums what has each of its values. Each block of a cluster has a part of
the row, and reads the sums of the others in their shared memory; where there are no clusters one block has it all. Sums
are of integers, so the order in which threads and blocks add them does not matter.
"""

from __future__ import annotations

THREADS, BLOCKS = 1024, 8
"""Of a block; blocks that are launched for each row."""

_SIZES = f"constexpr int LAUNCHED = {BLOCKS}, THREADS = {THREADS};"
_TEXT = r"""
#if __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(LAUNCHED, 1, 1)
constexpr int BLOCKS = LAUNCHED;  // that share a row
#else
#define CLUSTER
constexpr int BLOCKS = 1;
#endif
constexpr int WARPS = THREADS / 32, DIGIT = 8, VALUES = 1 << DIGIT;
constexpr int PIECE = 128;  // neighbouring weights that a warp loads at once
constexpr unsigned ALL = 0xffffffffu;
typedef long long i64;
typedef unsigned long long u64;

// What blocks tell each other lies in one of two places by turns: one barrier then is enough.
__shared__ u64 sums[2][VALUES];  // by the value of a digit
__shared__ u64 all_sums[VALUES];
__shared__ i64 shared_number, told[2], parts[WARPS];
__shared__ int shared_digit;

__device__ i64 warp_sum(i64 value) {
  for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(ALL, value, step);
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

__device__ void meet() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// What block `rank` of the cluster has at the place of `own`.
__device__ u64 of_block(const void* own, int rank) {
#if __CUDA_ARCH__ >= 900
  u64 value;
  unsigned at = unsigned(__cvta_generic_to_shared(own));
  asm volatile("{ .reg .u32 there;\n mapa.shared::cluster.u32 there, %1, %2;\n ld.shared::cluster.u64 %0, [there]; }"
               : "=l"(value) : "r"(at), "r"(rank) : "memory");
  return value;
#else
  return *(const u64*)own;
#endif
}

__device__ i64 block_sum(i64 value) {
  value = warp_sum(value);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = value;
  __syncthreads();
  return warp_sum(parts[threadIdx.x & 31]);
}

__device__ int block_max(int value) {
  value = __reduce_max_sync(ALL, value);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = value;
  __syncthreads();
  return __reduce_max_sync(ALL, int(parts[threadIdx.x & 31]));
}

// The part of a row that a block has, of which each warp has neighbours, a whole number of pieces.
struct Part {
  const int* weights;
  i64 count, range;  // of the row, of a warp
  int rank, turn;    // of the block, and which of the two places is in use
  bool in_fours;     // whether four weights lie as one load takes them

  __device__ i64 start() const { return (rank * i64(WARPS) + (threadIdx.x >> 5)) * range; }

  // Four neighbours from `at` on; 0 in place of those after the last.
  __device__ int4 four(i64 at) const {
    if (in_fours && at + 4 <= count) return *(const int4*)(weights + at);
    return make_int4(at < count ? weights[at] : 0, at + 1 < count ? weights[at + 1] : 0,
                     at + 2 < count ? weights[at + 2] : 0, at + 3 < count ? weights[at + 3] : 0);
  }

  template <class Use> __device__ void each(Use use) const {
    i64 first = start(), end = min(first + range, count);
    #pragma unroll 4
    for (i64 at = first + (threadIdx.x & 31) * 4; at < end; at += PIECE) {
      int4 w = four(at);
      use(w.x), use(w.y), use(w.z), use(w.w);
    }
  }

  // The sum of what each block has, and of what those before this one have.
  __device__ i64 of_all(i64 own, i64& before) {
    turn ^= 1;
    if (threadIdx.x == 0) told[turn] = own;
    meet();
    i64 total = before = 0;
    for (int other = 0; other < BLOCKS; ++other) {
      i64 theirs = of_block(&told[turn], other);
      if (other < rank) before += theirs;
      total += theirs;
    }
    return total;
  }

  __device__ int largest() {
    int top = 0;
    each([&](int weight) { top = max(top, weight); });
    top = block_max(top);
    turn ^= 1;
    if (threadIdx.x == 0) told[turn] = top;
    meet();
    for (int other = 0; other < BLOCKS; ++other) top = max(top, int(of_block(&told[turn], other)));
    return top;
  }
};

__device__ i64 sum_from(int4 w, int least) {
  return i64(w.x >= least ? w.x : 0) + (w.y >= least ? w.y : 0) + (w.z >= least ? w.z : 0) + (w.w >= least ? w.w : 0);
}

__device__ i64 sum_from(const Part& part, int least) {
  i64 total = 0;
  part.each([&](int weight) { total += weight >= least ? weight : 0; });
  return total;
}

// By the first warp: the largest value of the digit from which the sums reach `needed`, with `above` from larger
// digits; 0 if none does.
__device__ void find_digit(i64 above, double needed) {
  int lane = threadIdx.x & 31, first = VALUES - VALUES / 32 * (lane + 1);  // lane 0 has the largest values
  i64 own = 0;
  for (int value = first; value < first + VALUES / 32; ++value) own += all_sums[value];
  i64 before = above + warp_before(own);
  unsigned reached = __ballot_sync(ALL, before + own >= needed);
  if (!reached ? lane == 31 : lane == __ffs(reached) - 1) {
    int value = first + VALUES / 32 - 1;
    while (value > first && before + (i64)all_sums[value] < needed) before += all_sums[value--];
    shared_digit = value;
    shared_number = before;
  }
}

// The largest number such that the weights that reach it, and `floor`, have the sum, or the count, `needed`.
__device__ int least_of(Part& part, int floor, double needed, bool is_sum) {
  int least = 0;
  i64 above = 0;
  for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
    part.turn ^= 1;
    u64* own = sums[part.turn];
    for (int value = threadIdx.x; value < VALUES; value += THREADS) own[value] = 0;
    __syncthreads();
    part.each([&](int weight) {
      int digit = (weight >> shift) & (VALUES - 1);
      // What has the digit 0 decides nothing, and most weights are small.
      if (weight >= floor && digit && (i64(weight) >> (shift + DIGIT)) == (i64(least) >> (shift + DIGIT)))
        atomicAdd(&own[digit], is_sum ? u64(weight) : u64(1));
    });
    meet();
    for (int value = threadIdx.x; value < VALUES; value += THREADS) {
      u64 total = 0;
      for (int other = 0; other < BLOCKS; ++other) total += of_block(&own[value], other);
      all_sums[value] = total;
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

// By one warp: the lane whose sum goes above `before` when those of lower lanes are added, which are then taken off
// `before`; -1 if there is none.
__device__ int lane_after(i64 sum, i64& before) {
  i64 lower = warp_before(sum);
  unsigned above = __ballot_sync(ALL, lower + sum > before);
  int lane = above ? __ffs(above) - 1 : -1;
  before -= __shfl_sync(ALL, lower, lane & 31);
  return lane;
}

// By one warp: the first index from `first` on up to which the kept weights have a sum above `before`.
__device__ i64 index_after(const Part& part, i64 first, int least, i64 before) {
  int lane = threadIdx.x & 31;
  for (i64 at = first + lane * 4; at - lane * 4 < part.count; at += PIECE) {
    int4 w = part.four(at);
    i64 own = sum_from(w, least), whole = warp_sum(own);
    if (whole <= before) {
      before -= whole;
      continue;
    }
    int chosen = lane_after(own, before);
    int four[4] = {w.x, w.y, w.z, w.w}, place = 0;
    for (i64 passed = 0; place < 3; ++place) {
      passed += four[place] >= least ? four[place] : 0;
      if (passed > before) break;
    }
    return __shfl_sync(ALL, at + place, chosen);
  }
  return -1;
}

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS) draw(const int* weights, const double* uniform,
    const i64* top_k, const float* top_p, const float* min_p, i64* drawn, i64 count) {
  i64 row = blockIdx.x / LAUNCHED;
  int rank = blockIdx.x % LAUNCHED;
  if (rank >= BLOCKS) return;
  weights += row * count, uniform += row, top_k += row, top_p += row, min_p += row, drawn += row;
  i64 pieces = (count + PIECE - 1) / PIECE, range = (pieces + BLOCKS * WARPS - 1) / (BLOCKS * WARPS) * PIECE;
  Part part = {weights, count, range, rank, 0, (u64(weights) & 15) == 0};
  int lane = threadIdx.x & 31, least = 1;
  i64 before;
  if (0 < top_k[0] && top_k[0] < count) least = least_of(part, least, double(top_k[0]), false);
  if (top_p[0] < 1) {
    i64 total = part.of_all(block_sum(sum_from(part, least)), before);
    least = least_of(part, least, fmax(double(top_p[0]) * double(total), 1.0), true);
  }
  if (min_p[0] > 0) least = max(least, int(ceil(double(min_p[0]) * double(part.largest()))));

  // The block, then the warp, then the piece, the lane and the weight.
  i64 own = block_sum(sum_from(part, least)), total = part.of_all(own, before);
  i64 left = i64(uniform[0] * double(total));
  if (rank == 0 && threadIdx.x == 0 && left >= total) drawn[0] = -1;
  left -= before;
  if (threadIdx.x < 32 && 0 <= left && left < own) {
    int warp = lane_after(parts[lane], left);
    i64 index = index_after(part, (rank * i64(WARPS) + warp) * range, least, left);
    if (lane == 0) drawn[0] = index;
  }
  meet();  // a block that is gone can tell nothing
}
"""
SOURCE = _SIZES + _TEXT

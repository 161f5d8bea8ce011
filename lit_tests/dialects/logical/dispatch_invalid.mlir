// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: error: logical.dispatch: two rows have the same sizes
logical.dispatch @f dims ["N"] [[1] = @a, [1] = @b]

// -----

// CHECK: error: logical.dispatch: give at least one row, each with a program
logical.dispatch @f dims ["N"] []

// -----

// CHECK: error: logical.dispatch: row [1] needs one size of at least 0 for each of ['N', 'M']
logical.dispatch @f dims ["N", "M"] [[1] = @a]

// -----

// CHECK: error: logical.dispatch: row [-1] needs one size of at least 0 for each of ['N']
logical.dispatch @f dims ["N"] [[-1] = @a]

// -----

// CHECK: error: logical.dispatch: a dimension name is repeated in ['N', 'N']
logical.dispatch @f dims ["N", "N"] [[1, 2] = @a]

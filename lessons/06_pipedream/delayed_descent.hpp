#pragma once

namespace lockstep::lessons {

// Gradient descent on one weight w whose gradients come late:
//
//     w(t + 1) = w(t) - a w(t - delay)
//
// It goes to 0 if a is positive and not too large.

/// Returns the largest a by formula: 2 sin(pi / (2 (2 delay + 1))). For it w(t) = z^t
/// with |z| = 1, which the equation z^(delay + 1) - z^delay + a = 0 gives.
double largest_step(int delay);

/// Returns the largest a by trying, to some 1e-4.
double largest_step_tried(int delay);

}  // namespace lockstep::lessons

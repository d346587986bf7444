#pragma once

// Eigen as the simulator uses it; everything that needs Eigen includes this, so that
// these hold everywhere. Fibers have small stacks: Eigen's temporaries go to the heap.
// Threads are the scheduler's business.
#define EIGEN_STACK_ALLOCATION_LIMIT 0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

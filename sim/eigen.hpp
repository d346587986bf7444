#pragma once

// Eigen with the settings of the simulator. Everything that needs Eigen includes this.
// Fibers have small stacks, so Eigen's temporaries go to the heap. The scheduler makes
// the threads, so Eigen makes none.
#define EIGEN_STACK_ALLOCATION_LIMIT 0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

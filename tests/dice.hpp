#pragma once

#include <concepts>
#include <cstdint>

#include "src/core/philox.hpp"

namespace lockstep::test {

/// A series of random numbers, determined by a seed.
class Dice {
  public:
    explicit Dice(std::uint64_t seed) : stream_(seed, "dice") {}

    /// Returns a number from 0 to bound - 1.
    template <std::integral Number>
    Number below(Number bound) {
        return static_cast<Number>(stream_.uniform(next_++) * static_cast<double>(bound));
    }

  private:
    RandomStream stream_;
    std::uint64_t next_ = 0;
};

}  // namespace lockstep::test

#pragma once

#include <cstdint>
#include <string>

namespace emulated {

/// The properties of this process's GPUs, read once from the environment.
struct Settings {
    int gpus = 4;
    std::int64_t gpu_bytes = std::int64_t{2} << 30;
    std::uint64_t seed = 1;
    bool delays = true;
    int driver_version = 13000;  ///< the CUDA version that the driver supports
    int nccl_version = 22809;
    int kernels_for = 80;  ///< the capability that kernels claim to be compiled for
    int capability = 80;   ///< compute capability of the GPUs: 80 means 8.0
    bool memory_pools = true;
    int memory_reuse = 50;         ///< percent of allocations that get freed memory
    int connect_milliseconds = 0;  ///< the time in which NCCL makes a connection
    /// The number, from 1, of the kernel that touches memory other than its own; 0: none.
    std::int64_t fault_at_launch = 0;
    int fault_gpu = 0;  ///< the GPU whose launches are counted
};
const Settings& settings();

/// Pseudo-random numbers that are good enough to change an order (xorshift64*).
class Shaker {
  public:
    explicit Shaker(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 | 1) {}

    /// Returns a number from 0 to n - 1.
    unsigned below(unsigned n) {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        const auto word = static_cast<std::uint32_t>((state_ * 0x2545F4914F6CDD1D) >> 32);
        return static_cast<unsigned>((std::uint64_t{word} * n) >> 32);
    }

  private:
    std::uint64_t state_;
};

/// Sleeps for up to 200 microseconds in one of `one_in` calls; never if delays are off.
void delay_now_and_then(Shaker& shaker, unsigned one_in);

/// Ends the process because of a mistake to which a GPU may react in any way.
[[noreturn]] void die(const std::string& sentence);

}  // namespace emulated

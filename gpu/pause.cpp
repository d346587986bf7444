#include "gpu/pause.hpp"

#include <chrono>
#include <thread>

namespace lockstep::gpu {

void Pause::operator()() {
    constexpr int kBusy = 2000;
    if (++asked_ < kBusy)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace lockstep::gpu

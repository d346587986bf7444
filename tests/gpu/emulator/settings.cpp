#include "tests/gpu/emulator/settings.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace emulated {

namespace {

std::int64_t number(const char* variable, std::int64_t otherwise) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == '\0') return otherwise;
    char* end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    if (*end != '\0' || value < 0)
        die(std::string(variable) + "=" + text + " is not a whole number from 0");
    return value;
}

Settings read_environment() {
    Settings settings;
    settings.gpus = static_cast<int>(number("EMULATED_GPUS", settings.gpus));
    settings.gpu_bytes = number("EMULATED_GPU_BYTES", settings.gpu_bytes);
    settings.seed = static_cast<std::uint64_t>(number("EMULATED_GPU_SEED", 1));
    settings.delays = number("EMULATED_GPU_DELAYS", 1) != 0;
    settings.driver_version =
        static_cast<int>(number("EMULATED_DRIVER_VERSION", settings.driver_version));
    settings.nccl_version =
        static_cast<int>(number("EMULATED_NCCL_VERSION", settings.nccl_version));
    settings.kernels_for =
        static_cast<int>(number("EMULATED_KERNELS_FOR", settings.kernels_for));
    settings.capability =
        static_cast<int>(number("EMULATED_CAPABILITY", settings.capability));
    settings.memory_pools = number("EMULATED_MEMORY_POOLS", 1) != 0;
    settings.memory_reuse =
        static_cast<int>(number("EMULATED_MEMORY_REUSE", settings.memory_reuse));
    settings.connect_milliseconds =
        static_cast<int>(number("EMULATED_CONNECT_MILLISECONDS", 0));
    settings.fault_at_launch = number("EMULATED_FAULT_AT_LAUNCH", 0);
    settings.fault_gpu = static_cast<int>(number("EMULATED_FAULT_GPU", 0));
    return settings;
}

}  // namespace

const Settings& settings() {
    static const Settings settings = read_environment();
    return settings;
}

void delay_now_and_then(Shaker& shaker, unsigned one_in) {
    if (!settings().delays || shaker.below(one_in) != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(shaker.below(200)));
}

void die(const std::string& sentence) {
    std::fprintf(stderr, "emulated GPU: %s\n", sentence.c_str());
    std::fflush(stderr);
    std::abort();
}

}  // namespace emulated

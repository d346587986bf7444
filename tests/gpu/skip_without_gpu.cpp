// If there is no GPU, the tests of a program with this file are skipped, with status 77.
// With GPU_REQUIRED=1 they fail.

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "gpu/survey.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/processes.hpp"

namespace lockstep::gpu {

namespace {

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

struct SkipWithoutGpu : Listener {
    using Listener::Listener;

    void testRunStarting(const Catch::TestRunInfo&) override {
        constexpr int kSkipped = 77;
        // Asks in another process, because a process that has used CUDA cannot fork.
        const std::string problem =
            run_processes(1, [](int) { return survey().problem; }).front().said;
        if (problem.empty()) return;
        const char* required = std::getenv("GPU_REQUIRED");
        const bool fails = required != nullptr && std::string_view(required) == "1";
        std::fprintf(stderr, "%s: %s\n", fails ? "failed" : "skipped", problem.c_str());
        std::exit(fails ? EXIT_FAILURE : kSkipped);
    }
};

CATCH_REGISTER_LISTENER(SkipWithoutGpu)

}  // namespace

}  // namespace lockstep::gpu

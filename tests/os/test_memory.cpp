#include <sys/sysinfo.h>

#include "src/os/memory.hpp"
#include "tests/catch.hpp"

TEST_CASE("available memory is positive, and at most the machine's memory", "[os]") {
    struct sysinfo system {};
    REQUIRE(::sysinfo(&system) == 0);
    const std::int64_t available = lockstep::os::available_memory();
    CHECK(available > 0);
    CHECK(available <= static_cast<std::int64_t>((system.totalram + system.totalswap) *
                                                 system.mem_unit));
}

#include <sys/sysinfo.h>

#include "src/os/memory.hpp"
#include "tests/catch.hpp"

TEST_CASE("what is available is something, and no more than there is", "[os]") {
    struct sysinfo system {};
    REQUIRE(::sysinfo(&system) == 0);
    const std::int64_t available = lockstep::os::available_memory();
    CHECK(available > 0);
    CHECK(available <= static_cast<std::int64_t>((system.totalram + system.totalswap) *
                                                 system.mem_unit));
}

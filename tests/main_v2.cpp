// main() of the test programs under Catch2 v2; v3 has its own. Unlike in v2's main, a
// filter that matches no test is a failure, as in v3. The status of a failure is always
// 1: v2 returns the number of failed assertions, and 77 would mean skipped.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int main(int argc, char** argv) {
    Catch::Session session;
    if (session.applyCommandLine(argc, argv) != 0) return 1;
    Catch::ConfigData& config = session.configData();
    config.warnings =
        static_cast<Catch::WarnAbout::What>(config.warnings | Catch::WarnAbout::NoTests);
    return session.run() == 0 ? 0 : 1;
}

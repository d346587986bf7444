#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lessons/grader/confine/claimed_user.hpp"
#include "lessons/grader/confine/layers.hpp"
#include "lessons/grader/workspace.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
namespace fs = std::filesystem;

namespace {

/// While this lives, temporary files are in a separate folder.
class OwnPlace {
  public:
    OwnPlace() {
        if (const char* const before = std::getenv("TMPDIR")) before_ = before;
        ::setenv("TMPDIR", folder_.path().c_str(), 1);
    }
    ~OwnPlace() {
        if (before_.empty())
            ::unsetenv("TMPDIR");
        else
            ::setenv("TMPDIR", before_.c_str(), 1);
    }
    OwnPlace(const OwnPlace&) = delete;
    OwnPlace& operator=(const OwnPlace&) = delete;

    const fs::path& path() const { return folder_.path(); }

    /// A folder that a grader left an hour ago.
    fs::path left_folder(const std::string& name) const {
        fs::path folder = path() / name;
        fs::create_directories(folder / "kit");
        fs::last_write_time(folder,
                            fs::file_time_type::clock::now() - std::chrono::hours{1});
        return folder;
    }

  private:
    test::TemporaryFolder folder_;
    std::string before_;
};

mode_t mode_of(const fs::path& path) {
    struct stat status = {};
    ::stat(path.c_str(), &status);
    return status.st_mode & 0777;
}

}  // namespace

TEST_CASE("A workspace is closed to other users, and is removed", "[grader]") {
    const OwnPlace place;
    {
        const Workspace one, two;
        CHECK(mode_of(one.program().folder) == 0700);
        CHECK(one.program().folder != two.program().folder);
        const unsigned users[] = {one.program().confinement.user,
                                  two.program().confinement.user};
        CHECK((users[0] != users[1]) == ClaimedUser::works());
    }
    CHECK(fs::is_empty(place.path()));
}

TEST_CASE("A killed grader's workspace is removed", "[grader]") {
    const OwnPlace place;
    const pid_t grader = ::fork();
    if (grader == 0) {
        const Workspace workspace;
        std::ofstream(workspace.folder() / "source") << "int x;";
        for (;;)
            ::pause();
    }
    const auto holds = [&](std::ptrdiff_t count) {
        const fs::directory_iterator all(place.path());
        for (const fs::directory_entry& each : all)
            count -= fs::exists(each.path() / "source") ? 1 : 0;
        return count == 0;
    };
    for (int i = 0; i < 500 && !holds(1); ++i)
        ::usleep(10'000);
    REQUIRE(holds(1));
    ::kill(grader, SIGKILL);
    os::wait_for(grader);
    for (int i = 0; i < 500 && !fs::is_empty(place.path()); ++i)
        ::usleep(10'000);
    CHECK(fs::is_empty(place.path()));
}

TEST_CASE("The next grader removes what a killed one left, and nothing else",
          "[grader]") {
    const OwnPlace place;
    const fs::path left = place.left_folder("lockstep-grade-abcdef");
    const fs::path used = place.left_folder("lockstep-grade-ghijkl");
    const fs::path other = place.left_folder("lockstep-mnopqr");
    const fs::path young = place.path() / "lockstep-grade-stuvwx";
    fs::create_directory(young);
    const int lock = ::open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(::flock(lock, LOCK_EX) == 0);
    { const Workspace workspace; }
    CHECK_FALSE(fs::exists(left));
    for (const fs::path& kept : {used, other, young})
        CHECK(fs::exists(kept));
    ::close(lock);
    { const Workspace workspace; }
    CHECK_FALSE(fs::exists(used));
}

TEST_CASE("A claimed user is free again when the claim ends", "[grader]") {
    const unsigned first = ClaimedUser().number();
    CHECK(ClaimedUser().number() == first);
}

TEST_CASE("A missing layer is named if all are requested", "[grader]") {
    std::string missing;
    for (const ConfinementLayer& layer : confinement_layers())
        if (!layer.is_on) missing = layer.name;
    if (missing.empty())
        CHECK_NOTHROW(require_confinement());
    else
        CHECK_THROWS_WITH(require_confinement(),
                          Catch::Matchers::ContainsSubstring(missing));
}

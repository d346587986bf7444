#include <filesystem>

#include <fmt/format.h>

#include "lessons/grader/build_program.hpp"
#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/confine/fence.hpp"
#include "lessons/grader/confine/room.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

namespace {

/// Builds a program of one file. Returns the failure; none if the build succeeds.
std::optional<BuildFailure> build(const std::string& text, BuildPlan plan = {}) {
    const test::TemporaryFolder folder;
    folder.file("ring.cpp", text);
    plan.folder = folder.path();
    plan.sources = {"ring.cpp"};
    plan.flags = {"-std=c++20"};
    return build_program(plan);
}

std::vector<std::string> compilers() {
    std::vector<std::string> found{"c++"};
    if (std::filesystem::exists("/usr/bin/clang++")) found.push_back("/usr/bin/clang++");
    return found;
}

}  // namespace

TEST_CASE("A program is built from its sources, and runs", "[grader][build]") {
    const test::TemporaryFolder folder;
    folder.file("ring.cpp", "const char* where() { return __builtin_FILE(); }\n");
    folder.file("tasks.cpp",
                "#include <cstdio>\nconst char* where();\n"
                "int main() { int unused; std::puts(where()); }\n");
    const BuildPlan plan{.folder = folder.path(),
                         .sources = {"ring.cpp", "tasks.cpp"},
                         .flags = {"-Wall"}};
    REQUIRE_FALSE(build_program(plan));
    ConfinedProcess program({.words = {"./program"}, .folder = folder.path()});
    CHECK(program.wait()->succeeded());
    CHECK_THAT(program.output(), Equals("ring.cpp\n"));
}

TEST_CASE("A mistake is named with its line", "[grader][build]") {
    const auto failure = build("int main() {\n    int x = 1\n    return x;\n}\n");
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.cpp"));
    CHECK((failure->line == 2 || failure->line == 3));
    CHECK_THAT(failure->message, StartsWith("expected "));
    CHECK_THAT(failure->lines,
               ContainsSubstring("int x = 1") || ContainsSubstring("return x"));
    CHECK_THAT(failure->lines, ContainsSubstring("^"));
}

TEST_CASE("A mistake in a library's template is named at the student's own line",
          "[grader][build]") {
    const std::string compiler = GENERATE(from_range(compilers()));
    const auto failure = build(
        "#include <algorithm>\n#include <list>\n"
        "void twice(std::list<int>& all) {\n"
        "    std::sort(all.begin(), all.end());\n}\n",
        {.compiler = {compiler}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.cpp"));
    CHECK(failure->line == 4);
    CHECK_THAT(failure->message,
               ContainsSubstring("operator-") || ContainsSubstring("invalid operands"));
    CHECK_THAT(failure->lines, ContainsSubstring("__last - __first"));
}

TEST_CASE("The innermost of the student's own lines that led to a mistake is named",
          "[grader][build]") {
    const std::string compiler = GENERATE(from_range(compilers()));
    const auto failure = build(
        "#include <algorithm>\n#include <list>\n"
        "template <class All> void twice(All& all) {\n"
        "    std::sort(all.begin(), all.end());\n}\n"
        "void f(std::list<int>& all) {\n    twice(all);\n}\n",
        {.compiler = {compiler}});
    REQUIRE(failure);
    CHECK(failure->line == 4);
}

TEST_CASE("A missing header is named", "[grader][build]") {
    const std::string compiler = GENERATE(from_range(compilers()));
    const auto failure = build("\n#include \"nowhere.hpp\"\n", {.compiler = {compiler}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.cpp"));
    CHECK(failure->line == 2);
    CHECK_THAT(failure->message, StartsWith("nowhere.hpp: No such file") ||
                                     StartsWith("'nowhere.hpp' file not found"));
}

TEST_CASE("A mistake in a student's header is named with the header's line",
          "[grader][build]") {
    const test::TemporaryFolder folder;
    folder.file("ring.hpp", "#pragma once\nint f() { return y; }\n");
    folder.file("ring.cpp", "#include \"ring.hpp\"\nint main() {}\n");
    const auto failure =
        build_program({.folder = folder.path(), .sources = {"ring.cpp"}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.hpp"));
    CHECK(failure->line == 2);
}

TEST_CASE("A missing symbol is named", "[grader][build]") {
    const std::string compiler = GENERATE(from_range(compilers()));
    const auto failure =
        build("int send(int rank);\nint main() {\n    return send(1);\n}\n",
              {.compiler = {compiler}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.cpp"));
    CHECK(failure->line == 3);
    CHECK_THAT(failure->message, Equals("undefined reference to `send(int)'"));
    const auto headless = build("int f() { return 1; }\n", {.compiler = {compiler}});
    REQUIRE(headless);
    CHECK_THAT(headless->message, Equals("undefined reference to `main'"));
}

TEST_CASE("A symbol defined twice is named", "[grader][build]") {
    const test::TemporaryFolder folder;
    folder.file("ring.cpp", "\nint f() { return 1; }\nint main() {}\n");
    folder.file("tasks.cpp", "\n\nint f() { return 1; }\n");
    const auto failure =
        build_program({.folder = folder.path(), .sources = {"ring.cpp", "tasks.cpp"}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("tasks.cpp"));
    CHECK(failure->line == 3);
    CHECK_THAT(failure->message, StartsWith("multiple definition of `f()'"));
}

TEST_CASE("A missing library is named by the linker", "[grader][build]") {
    const auto failure = build("int main() {}\n", {.link = {"-lno_such_library"}});
    REQUIRE(failure);
    CHECK_THAT(failure->message, ContainsSubstring("cannot find -lno_such_library"));
}

TEST_CASE("A source that grows without end is refused for its memory",
          "[grader][build]") {
    const auto failure = build(
        "#define A(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, "
        "__VA_ARGS__, __VA_ARGS__, __VA_ARGS__\n"
        "#define B(...) A(A(A(__VA_ARGS__)))\n"
        "int all[] = {B(B(B(1)))};\n",
        {.compiler = {"g++"}});
    REQUIRE(failure);
    CHECK_THAT(failure->file, Equals("ring.cpp"));
    CHECK_THAT(failure->message,
               Equals("the compiler needed more than 1536 MiB of memory"));
}

TEST_CASE("A source cannot include other users' files", "[grader][build]") {
    if (Fence::version() == 0 && !Room::works()) return;
    const test::TemporaryFolder other;
    std::filesystem::permissions(other.path(), std::filesystem::perms{0755});
    const std::string secret = other.file("secret", "int secret = 0;\n").string();
    for (const std::string& file : {std::string("/dev/zero"), std::string("/etc/passwd"),
                                    std::string("/proc/self/environ"), secret})
        for (const std::string& source :
             {fmt::format("#include \"{}\"\nint main() {{}}\n", file),
              fmt::format("asm(\".incbin \\\"{}\\\"\");\nint main() {{}}\n", file)}) {
            INFO(source);
            const auto failure = build(source);
            REQUIRE(failure);
            CHECK((failure->message.find("No such file or directory") !=
                       std::string::npos ||
                   failure->message.find("Permission denied") != std::string::npos ||
                   failure->message.find("file not found") != std::string::npos));
        }
    CHECK_FALSE(
        build(fmt::format("#include \"{}\"\nint main() {{ return secret; }}\n", secret),
              {.reads = {other.path()}}));
}

TEST_CASE("Templates that never end are refused", "[grader][build]") {
    const std::string compiler = GENERATE(from_range(compilers()));
    const auto deep = build(
        "template <int N>\nstruct A {\n"
        "    using Next = typename A<N + 1>::Next;\n};\n"
        "A<0>::Next next;\n",
        {.compiler = {compiler}});
    REQUIRE(deep);
    CHECK(deep->line == 3);
    CHECK_THAT(deep->message, ContainsSubstring("depth"));
    const auto wide = build(
        "template <int N, int M> struct B {\n"
        "    static constexpr long v = B<N - 1, 2 * M>::v + B<N - 1, 2 * M + 1>::v;\n};\n"
        "template <int M> struct B<0, M> { static constexpr long v = M; };\n"
        "int main() { return B<30, 0>::v > 0; }\n",
        {.compiler = {compiler}, .cpu_seconds = 1});
    REQUIRE(wide);
    CHECK_THAT(wide->file, Equals("ring.cpp"));
    CHECK_THAT(wide->message,
               Equals("the compiler was stopped after 1 s of processor time"));
}

TEST_CASE("A large array costs the grader nothing", "[grader][build]") {
    const auto computed = build(
        "struct A {\n    int v[1000000000] = {};\n"
        "    constexpr A() { for (int& x : v) x = 3; }\n};\n"
        "constexpr A a;\nint main() { return a.v[5]; }\n",
        {.cpu_seconds = 2});
    REQUIRE(computed);
    const auto written = build("int a[1000000000] = {1};\nint main() {}\n");
    REQUIRE(written);
    CHECK_THAT(written->message, ContainsSubstring("larger than 64 MiB"));
}

TEST_CASE("A machine without processor time is not the student's mistake",
          "[grader][build]") {
    CHECK_THROWS_AS(build("int main() {}\n", {.wall_seconds = 0.001}), MissingError);
}

TEST_CASE("A missing compiler is not the student's mistake", "[grader][build]") {
    CHECK_THROWS_WITH(build("int main() {}\n", {.compiler = {"no-such-compiler"}}),
                      "cannot start no-such-compiler: No such file or directory");
}

TEST_CASE("The line of an error is found under GNU's linker and LLVM's",
          "[grader][build]") {
    const test::TemporaryFolder folder;
    folder.file("ring.cpp", "");
    const auto lld = first_error(
        "ld.lld: error: undefined symbol: send(int)\n"
        ">>> referenced by ring.cpp:3\n"
        ">>>               ring.cpp.o:(main)\n",
        folder.path());
    REQUIRE(lld);
    CHECK_THAT(lld->file, Equals("ring.cpp"));
    CHECK(lld->line == 3);
    CHECK_THAT(lld->message, Equals("undefined symbol: send(int)"));
    const auto plain = first_error(
        "/usr/bin/ld: ring.cpp.o: in function `main':\n"
        "ring.cpp:(.text+0xa): undefined reference to `f()'\n",
        folder.path());
    REQUIRE(plain);
    CHECK_THAT(plain->file, Equals("ring.cpp"));
    CHECK(plain->line == 0);
    CHECK_FALSE(
        first_error("ring.cpp:3:4: warning: unused variable 'x'\n", folder.path()));
}

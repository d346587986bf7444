#include "lessons/runner/command.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

using Typed = std::vector<std::string>;

LessonRequest lesson(Typed words) {
    words.insert(words.begin(), {"lesson", "some-lesson"});
    return std::get<LessonRequest>(read_request(words));
}

std::string refusal(const Typed& words) {
    return message_of<UsageError>([&] { read_request(words); });
}

std::string lesson_refusal(const Typed& words) {
    return message_of<UsageError>([&] { lesson(words); });
}

LessonOptions options_with(const std::string& key, const std::string& value) {
    LessonOptions options;
    options.settings[key] = value;
    return options;
}

LessonEntry entry() {
    LessonEntry entry;
    entry.slug = "some-lesson";
    entry.settings = {{"targets", "columns that are targets", Whole{1, 9, 1}}};
    return entry;
}

}  // namespace

TEST_CASE("every option of a lesson is read", "[lessons]") {
    const LessonRequest request =
        lesson({"--step",    "3",         "--backend",
                "gpu",       "--ranks=8", "--dtype",
                "f64",       "--seed",    "18446744073709551615",
                "--cluster", "h100",      "--text",
                "a.txt",     "--data",    "b.csv",
                "--set",     "targets=2", "--set",
                "note=a=b",  "--out",     "run",
                "--json",    "--check",   "full"});
    const LessonOptions& options = request.options;
    CHECK(request.slug == "some-lesson");
    CHECK(options.step == 3);
    CHECK(options.backend == "gpu");
    CHECK(options.ranks == 8);
    CHECK(options.dtype == DType::f64);
    CHECK(options.seed == 18446744073709551615u);
    CHECK(options.cluster == "h100");
    CHECK(options.text == "a.txt");
    CHECK(options.data == "b.csv");
    CHECK(options.settings ==
          std::map<std::string, std::string>{{"targets", "2"}, {"note", "a=b"}});
    CHECK(options.out == "run");
    CHECK(options.json);
    CHECK(options.check == sim::CheckLevel::full);
}

TEST_CASE("options may stand before the lesson, and have defaults", "[lessons]") {
    const Request request = read_request({"lesson", "--dtype", "f64", "some-lesson"});
    const LessonOptions& options = std::get<LessonRequest>(request).options;
    CHECK(std::get<LessonRequest>(request).slug == "some-lesson");
    CHECK(options.dtype == DType::f64);
    CHECK(options.backend == "sim");
    CHECK(options.seed == 1);
    CHECK_FALSE(options.ranks.has_value());
}

TEST_CASE("a bad value is named with its option and what was expected",
          "[lessons][errors]") {
    const std::string ranks = ": a whole number from 1 to 16384 is expected";
    for (const char* value :
         {"0", "100000", "x", "-3", "4.0", "", "99999999999999999999"})
        CHECK(
            lesson_refusal({"--ranks=" + std::string(value)}) ==
            (*value == 0 ? "--ranks: a value is missing" : "--ranks " + (value + ranks)));
    CHECK(lesson_refusal({"--step", "0"}) ==
          "--step 0: a whole number from 1 to 2147483647 is expected");
    CHECK(lesson_refusal({"--seed", "-1"}) ==
          "--seed -1: a whole number from 0 to 18446744073709551615 is expected");
    CHECK(lesson_refusal({"--dtype", "f16"}) ==
          "--dtype f16: f32, f64 or bf16 is expected");
    CHECK(lesson_refusal({"--backend", "tpu"}) ==
          "--backend tpu: sim, cuda, nccl or gpu is expected");
    CHECK(lesson_refusal({"--set", "nonsense"}) ==
          "--set nonsense: KEY=VALUE is expected");
    CHECK(lesson_refusal({"--set", "=1"}) == "--set =1: KEY=VALUE is expected");
    CHECK(lesson_refusal({"--set", "a=1", "--set", "a=2"}) ==
          "--set a=2: this setting is given twice");
    CHECK(lesson_refusal({"--out", ""}) == "--out: a path is expected");
}

TEST_CASE("a command line that cannot be read is answered in one sentence",
          "[lessons][errors]") {
    CHECK(refusal({"lesson"}) == "SLUG is missing; see lockstep lesson --help");
    CHECK(refusal({"compare", "a"}) == "DIR_B is missing; see lockstep compare --help");
    CHECK(refusal({"compare", "a", "b", "c"}) ==
          "'c' is one argument too many for lockstep compare");
    CHECK(lesson_refusal({"--rnaks", "4"}) ==
          "unknown option --rnaks; did you mean --ranks?");
    CHECK(lesson_refusal({"--frobnicate=4"}) == "unknown option --frobnicate");
    CHECK(lesson_refusal({"--ranks"}) == "--ranks: a value is missing");
    CHECK(lesson_refusal({"--step", "1", "--step", "2"}) == "--step is given twice");
    CHECK(lesson_refusal({"--json=no"}) == "--json: this option takes no value");
    CHECK(
        refusal({"lesons"}).starts_with("unknown command 'lesons'; there are lessons,"));
    CHECK(refusal({"--frob"}).starts_with("unknown option '--frob'; there are lessons,"));
    CHECK(refusal({"--version", "x"}) == "'x' is one argument too many for --version");
}

TEST_CASE("compare takes folders of any name, and a bound", "[lessons]") {
    const auto request = std::get<CompareRequest>(
        read_request({"compare", "lessons", "--bound", "1e-5", "lesson"}));
    CHECK(request.a == "lessons");
    CHECK(request.b == "lesson");
    CHECK(request.bound == 1e-5);
    for (const char* bound : {"-1", "nan", "x", "inf"})
        CHECK(refusal({"compare", "a", "b", "--bound", bound}) ==
              "--bound " + std::string(bound) + ": a number from 0 on is expected");
}

TEST_CASE("help lists all options, in lines of 80 columns", "[lessons]") {
    for (const Typed& words :
         {Typed{}, Typed{"--help"}, Typed{"lesson", "--help"},
          Typed{"lesson", "-h", "--ranks", "4"}, Typed{"compare", "--help"},
          Typed{"lessons", "--help"}, Typed{"doctor", "--help"}}) {
        const std::string text = std::get<TextRequest>(read_request(words)).text;
        CHECK(text.find("Usage: lockstep") != std::string::npos);
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = text.find('\n', begin);
            CHECK(end - begin <= 80);
            begin = end + 1;
        }
    }
}

TEST_CASE("settings are read with their ranges", "[lessons]") {
    const std::vector<Setting> declared{{"n", "", Whole{1, 9, 7}},
                                        {"x", "", Real{0, 1, 1}},
                                        {"w", "", Choice{{"a", "b"}, "a"}}};
    const auto given = [&](const std::string& key, const std::string& value) {
        return Settings(declared, {{key, value}});
    };
    CHECK(Settings(declared, {}).integer("n") == 7);
    CHECK(given("n", "3").integer("n") == 3);
    CHECK(given("x", "2.5e-1").number("x") == 0.25);
    CHECK(given("w", "b").word("w") == "b");
    CHECK(Settings(declared, {}).word("w") == "a");

    for (const char* value : {"0", "10", "x", "", "3.0", "3 "})
        CHECK(message_of<UsageError>([&] { given("n", value); }) ==
              "--set n=" + std::string(value) +
                  ": a whole number from 1 to 9 is expected");
    for (const char* value : {"1.5", "nan", "x", ""})
        CHECK(message_of<UsageError>([&] { given("x", value); }) ==
              "--set x=" + std::string(value) + ": a number from 0 to 1 is expected");
    CHECK(message_of<UsageError>([&] { given("w", "c"); }) ==
          "--set w=c: a or b is expected");
}

TEST_CASE(
    "a default that depends on other settings is described in words; its reader gives it",
    "[lessons]") {
    const Setting twice{"m", "of a step", Whole{1, 9}, "twice the ranks"};
    CHECK(Settings({twice}, {}).integer("m", 6) == 6);
    CHECK(Settings({twice}, {{"m", "2"}}).integer("m", 6) == 2);
    CHECK_FALSE(Settings({twice}, {}).has("m"));
    CHECK(twice.help() == "of a step (1 to 9; default twice the ranks)");
    CHECK(twice.standard_text() == "twice the ranks");
    CHECK(Setting{"x", "a rate", Real{0, 1e6, 0.01}}.help() ==
          "a rate (0 to 1000000; default 0.01)");
}

TEST_CASE("a setting that is read but not declared is a mistake of the lesson",
          "[lessons][errors]") {
    const Settings settings({{"n", "", Whole{1, 9}}}, {});
    CHECK_THROWS_AS(settings.integer("n"), std::logic_error);
    CHECK_THROWS_AS(settings.integer("m", 1), std::logic_error);
}

TEST_CASE("an unknown setting is refused", "[lessons][errors]") {
    CHECK_NOTHROW(understood(options_with("targets", "1"), entry()));
    CHECK_NOTHROW(understood(options_with("workers", "1"), entry()));
    CHECK(message_of<UsageError>(
              [] { understood(options_with("target", "1"), entry()); }) ==
          "--set target=1: no such setting; there are workers, executor, schedule_seed, "
          "numerics, tf32, sync, timeout, nccl, trace, targets");
    LessonOptions options;
    options.text = "a.txt";
    CHECK(message_of<UsageError>([&] { understood(options, entry()); }) ==
          "--text: the lesson some-lesson takes none");
}

TEST_CASE("the settings of every lesson reach the simulator", "[lessons]") {
    LessonOptions options;
    options.cluster = "unit";
    options.settings = {{"workers", "3"},
                        {"executor", "threads"},
                        {"schedule_seed", "9"},
                        {"numerics", "off"}};
    const sim::ClusterOptions cluster =
        cluster_options(understood(options, entry()), 5, true);
    CHECK(cluster.ranks == 5);
    CHECK(cluster.trace);
    CHECK(cluster.spec.name == "unit");
    CHECK(cluster.workers == 3);
    CHECK(cluster.executor == sim::ExecutorKind::threads);
    CHECK(cluster.schedule_seed == 9u);
    CHECK_FALSE(cluster.numbers);
}

TEST_CASE("an impossible cluster is refused with the option's name",
          "[lessons][errors]") {
    LessonOptions options;
    options.cluster = "no-such-cluster";
    CHECK(message_of<UsageError>([&] {
              cluster_options(options, 1, false);
          }).starts_with("--cluster: "));
}

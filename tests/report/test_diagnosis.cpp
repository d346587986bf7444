#include "src/run/diagnosis.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Diagnosis counts_differ(int ranks) {
    Diagnosis diagnosis;
    diagnosis.fault = "F02";
    diagnosis.title = "counts differ";
    diagnosis.sentence =
        "Rank 2 calls all_reduce with 500 elements at lesson.cpp:31; the others with "
        "1000 at lesson.cpp:29.";
    diagnosis.cause = "the buffer's size depends on the rank.";
    diagnosis.communicator = "dp";
    diagnosis.sequence = 41;
    diagnosis.time = 1'230'000'000;
    for (int rank = 0; rank < ranks; ++rank) {
        diagnosis.members.push_back(rank);
        const bool odd = rank == 2;
        diagnosis.parties.push_back(
            {{rank},
             odd ? "all_reduce(sum, 500 x f32)" : "all_reduce(sum, 1000 x f32)",
             odd ? "count" : "",
             {"lesson.cpp", odd ? 31 : 29},
             {"matmul", "all_reduce #40"}});
    }
    diagnosis.others.push_back({{ranks}, "has ended", "", {}, {}});
    return diagnosis;
}

}  // namespace

TEST_CASE("ranks are written as ranges", "[report]") {
    REQUIRE(ranks_text({2}) == "rank 2");
    REQUIRE(ranks_text({5, 3, 1, 2}) == "ranks 1–3, 5");
    REQUIRE(ranks_text({1, 0}) == "ranks 0–1");
    REQUIRE(ranks_text({4, 4}) == "rank 4");
    REQUIRE(ranks_text({}) == "no rank");
    std::vector<int> even;
    for (int rank = 0; rank < 1000; rank += 2)
        even.push_back(rank);
    REQUIRE(ranks_text(even) ==
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 490 ranges more");
}

TEST_CASE("a diagnosis names class, parties, lines, the others and the cause",
          "[report]") {
    REQUIRE(counts_differ(256).text() == R"(F02: counts differ
Rank 2 calls all_reduce with 500 elements at lesson.cpp:31; the others with 1000 at lesson.cpp:29.

  communicator dp of ranks 0–255, operation #41, virtual time 1.23 ms
  ranks 0–1, 3–255: all_reduce(sum, 1000 x f32) at lesson.cpp:29
      rank 0's last calls: matmul, all_reduce #40
  rank 2: all_reduce(sum, 500 x f32) at lesson.cpp:31  <-- differs: count
      its last calls: matmul, all_reduce #40

  What the others are doing:
  rank 256: has ended

Likely cause: the buffer's size depends on the rank.
)");
}

TEST_CASE("a diagnosis without communicator, others, or cause leaves them out",
          "[report]") {
    Diagnosis diagnosis;
    diagnosis.fault = "F11";
    diagnosis.title = "a cycle";
    diagnosis.sentence = "Rank 0 waits for rank 0.";
    REQUIRE(diagnosis.text() == "F11: a cycle\nRank 0 waits for rank 0.\n\n");
}

TEST_CASE("no line of a diagnosis has more characters than allowed", "[report]") {
    for (int width = 40; width <= 120; ++width) {
        const std::string text = counts_differ(8).text(width);
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = text.find('\n', at);
            INFO(width << ": " << text.substr(at, end - at));
            REQUIRE(columns_of(text.substr(at, end - at)) <= width);
            at = end + 1;
        }
    }
}

TEST_CASE("a long history loses its oldest calls", "[report]") {
    Diagnosis diagnosis = counts_differ(1);
    diagnosis.parties[0].history = {"1", "2", "3", "4", "5", "6", "7"};
    REQUIRE(contains(diagnosis.text(), "its last calls: ..., 3, 4, 5, 6, 7\n"));
}

TEST_CASE("a fault's message is its title and sentence", "[report]") {
    const FaultError error(counts_differ(4));
    REQUIRE(std::string(error.what()) ==
            "F02: counts differ\nRank 2 calls all_reduce with 500 elements at "
            "lesson.cpp:31; the others with 1000 at lesson.cpp:29.");
    REQUIRE(error.diagnosis().sequence == 41);
}

TEST_CASE("text is wrapped at spaces, and long words stay whole", "[report]") {
    REQUIRE(wrapped("", 10) == "");
    REQUIRE(wrapped("  ", 10) == "");
    REQUIRE(wrapped("one two three", 7) == "one two\nthree\n");
    REQUIRE(wrapped("a –––– b", 6, "> ", "  ") == "> a\n  ––––\n  b\n");
    REQUIRE(wrapped("extraordinarily long", 5) == "extraordinarily\nlong\n");
    REQUIRE(wrapped("two  spaces", 20) == "two  spaces\n");
    REQUIRE(wrapped("–– ––", 5) == "–– ––\n");
    REQUIRE(columns_of("1–3") == 3);
}

#include "lessons/page/prediction.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Outcome = Judgement::Outcome;

namespace {

Prediction prediction_of(const Figure& answer) {
    Prediction prediction;
    prediction.answer = answer;
    return prediction;
}

Outcome outcome(const Figure& answer, const char* typed) {
    return judge(prediction_of(answer), typed).outcome;
}

}  // namespace

TEST_CASE("an answer within one percent is right", "[lessons]") {
    const Figure answer = Figure::bytes(6000);
    for (const char* typed : {"6000", "6,000", " 6,000 bytes", "6e3", "5.95e3", "6040 B",
                              "5.86 KiB", "6 kB", "48 kbit", "12000/2"}) {
        CAPTURE(typed);
        CHECK(outcome(answer, typed) == Outcome::right);
    }
    for (const char* typed : {"5,900", "6100", "6 KiB", "6 MB", "-6000", "0", "1/6000"}) {
        CAPTURE(typed);
        CHECK(outcome(answer, typed) == Outcome::wrong);
    }
    for (const char* typed : {"", "many", "6 apples", "6,00", "1/0", "6/", "nan", "inf",
                              "six", "q", "6 us"}) {
        CAPTURE(typed);
        CHECK(outcome(answer, typed) == Outcome::unreadable);
    }
}

TEST_CASE("times are read in any unit, plain numbers in the expected unit", "[lessons]") {
    const Figure answer = Figure::time(714'000'000);
    CHECK(unit_asked_for(answer) == "us");
    for (const char* typed :
         {"714", "714 us", "714us", "714 µs", "0.714 ms", "714000 ns"}) {
        CAPTURE(typed);
        CHECK(outcome(answer, typed) == Outcome::right);
    }
    CHECK(outcome(answer, "714 ms") == Outcome::wrong);
    CHECK(outcome(Figure::seconds(3), "3") == Outcome::right);
    CHECK(outcome(Figure::seconds(3), "3 s") == Outcome::right);
    CHECK(outcome(Figure::seconds(3), "3000 ms") == Outcome::right);
    CHECK(outcome(Figure::seconds(3), "3 ms") == Outcome::wrong);
}

TEST_CASE("a fraction can be typed in any form", "[lessons]") {
    for (const char* typed : {"25", "25%", "25 %", "0.25", "1/4"}) {
        CAPTURE(typed);
        CHECK(outcome(Figure::percent(25), typed) == Outcome::right);
    }
    CHECK(outcome(Figure::percent(25), "0.25%") == Outcome::wrong);
    CHECK(judge(prediction_of(Figure::percent(25)), "0.3").remark ==
          std::string("The answer is smaller."));
    CHECK(outcome(Figure::count(0.25), "25%") == Outcome::right);
    CHECK(outcome(Figure::count(4), "4") == Outcome::right);
    CHECK(outcome(Figure::count(0), "0") == Outcome::right);
    CHECK(outcome(Figure::count(0), "1") == Outcome::wrong);
}

TEST_CASE("a common wrong answer gets its hint, another of a known kind gets a remark",
          "[lessons]") {
    Prediction prediction = prediction_of(Figure::bytes(6000));
    Span text;
    text.text = "Twice.";
    prediction.hints.push_back({3000, "", {text}});
    const Judgement half = judge(prediction, "3 kB");
    REQUIRE(half.hint);
    CHECK(plain(half.hint->text) == "Twice.");
    CHECK(judge(prediction, "48000").remark ==
          std::string("Bits or bytes? A byte has 8 bits."));
    CHECK(judge(prediction, "6 KiB").remark ==
          std::string("1 KiB is 1,024 bytes, 1 kB is 1,000."));
    CHECK(judge(prediction, "7000").remark == std::string("The answer is smaller."));
    CHECK(judge(prediction, "5000").remark == std::string("The answer is larger."));
    CHECK_FALSE(judge(prediction, "6000").hint);
}

#include <cmath>
#include <limits>

#include "lessons/grader/judge.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

/// Returns a task that computes `products` matrix products and outputs these values (n).
Tasks leaving(const std::vector<double>& values, int products = 0) {
    return {{"leave", [=](Rank& rank, const TaskInputs&, TaskOutputs& out) {
                 Device& device = rank.device();
                 const auto elements = static_cast<std::int64_t>(values.size());
                 out.tensors["values"] =
                     device.upload(HostTensor::of<double>({elements}, values));
                 const Tensor square = device.zeros({8, 8}, DType::f64);
                 for (int i = 0; i < products; ++i)
                     device.matmul(square, square);
             }}};
}

Solution solution(const std::string& says, Tasks tasks) {
    return {says, says, "", {}, std::move(tasks)};
}

TaskRun one_rank(const std::string& name = "one rank") {
    return {name, {RankTask{"leave", {}, {}}}};
}

/// A student's solution and the grader's knowledge of it.
struct Grading {
    Solution student;
    Answers answers;
    std::vector<Criterion> criteria{};
    SolutionWork work{student, sim::CheckLevel::full};

    Grading(Tasks left, std::vector<Solution> known)
        : student(solution("", std::move(left))), answers(std::move(known)) {}

    Judge judge() { return {work, GradingSide{"", 1, &answers}}; }

    void ask(const std::string& id, std::function<void(Judge&)> asked) {
        criteria.push_back({id, id, 1, "", std::move(asked)});
    }
    Judgement judgement(std::size_t index) {
        return judgement_of({"a", "a", "", {}, criteria, nullptr}, index, judge());
    }
};

void ask_values(Judge& judge) {
    judge.as_right(one_rank());
}

void ask_flops(Judge& judge) {
    judge.figure_as_right(one_rank(), "flops", "flops",
                          [](const RunReport& report) { return report.ranks[0].flops; });
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("values equal the reference's, including NaN and infinity", "[judge]") {
    const auto passes = [](const std::vector<double>& left,
                           const std::vector<double>& right) {
        Grading grading(leaving(left), {solution("", leaving(right))});
        grading.ask("a1", ask_values);
        return grading.judgement(0).mark == Mark::passed;
    };
    CHECK(passes({1, 2}, {1, 2}));
    CHECK_FALSE(passes({1, 2.1}, {1, 2}));
    CHECK_FALSE(passes({1, std::nan("")}, {1, 2}));
    CHECK_FALSE(passes({1, 2, 3}, {1, 2}));
    CHECK_FALSE(passes({1, kInfinity}, {1, 2}));
    CHECK(passes({kInfinity, 2}, {kInfinity, 2}));
    CHECK_FALSE(passes({kInfinity, 3}, {kInfinity, 2}));
    CHECK_FALSE(passes({-kInfinity, 2}, {kInfinity, 2}));
}

TEST_CASE("a solution with the results of a known mistake gets its sentence", "[judge]") {
    const std::vector<Solution> known{solution("", leaving({1})),
                                      solution("that is twice", leaving({2})),
                                      solution("that is three times", leaving({3}))};
    Grading grading(leaving({3}), known);
    grading.ask("a1", ask_values);
    CHECK(grading.judgement(0).said == "that is three times");
    Grading other(leaving({4}), known);
    other.ask("a1", ask_values);
    CHECK(other.judgement(0).said.empty());
}

TEST_CASE("a known mistake that costs the same explains a student's cost", "[judge]") {
    // The first mistake has other flops, so it does not explain the student's cost.
    const std::vector<Solution> known{
        solution("", leaving({1}, 1)), solution("other values", leaving({2}, 1)),
        solution("it multiplies once more", leaving({1}, 2))};
    Grading grading(leaving({1}, 2), known);
    grading.ask("a1", ask_flops);
    CHECK(grading.judgement(0).said == "it multiplies once more");
    Grading other(leaving({1}, 3), known);
    other.ask("a1", ask_flops);
    CHECK(other.judgement(0).mark == Mark::failed);
    CHECK(other.judgement(0).said.empty());
}

TEST_CASE("a rank that holds too much is told what fills its memory", "[judge]") {
    const auto holding = [](std::int64_t elements) {
        return Tasks{{"leave", [=](Rank& rank, const TaskInputs&, TaskOutputs& out) {
                          Device& device = rank.device();
                          out.tensors["values"] = device.zeros({4}, DType::f64);
                          const MemoryScope scope(device, MemoryCategory::gradients);
                          if (rank.index() == 1) device.zeros({elements}, DType::f64);
                      }}};
    };
    TaskRun run{"two ranks", {2, RankTask{"leave", {}, {}}}};
    const auto said_of = [&](std::int64_t elements) {
        Grading grading(holding(elements), {solution("", holding(100))});
        grading.ask("a1", [&](Judge& judge) {
            judge.figures_as_right(run, "a1", {{kPeak, {0, 10}, "free it"}});
        });
        return grading.judgement(0).said;
    };
    CHECK(said_of(100).empty());
    const std::string said = said_of(1000);
    INFO(said);
    CHECK(
        said.starts_with("of the 8032 bytes at the peak, most are 7.81 KiB in 1 tensor "
                         "of gradients made at "));
    CHECK(said.find("test_judge.cpp:") != std::string::npos);
    CHECK(said.ends_with(". free it"));
    // A program that holds too little has another mistake.
    CHECK(said_of(10).empty());
}

TEST_CASE("a figure that is too low gets other advice than one that is too high",
          "[judge]") {
    const auto judgement = [](int products, Allowed allowed) {
        Grading grading(leaving({1}, products), {solution("", leaving({1}, 2))});
        grading.ask("a1", [=](Judge& judge) {
            judge.figures_as_right(one_rank(), "a1",
                                   {{kFlops, allowed, "do less", "do more"}});
        });
        return grading.judgement(0);
    };
    CHECK(judgement(3, {}).said == "do less");
    CHECK(judgement(1, {}).said == "do more");
    CHECK(judgement(3, {0, kAnyMore}).mark == Mark::passed);
    CHECK(judgement(1, {0, kAnyMore}).asked ==
          "a1: one rank: rank 0: computed: at least 2048 flops");
}

TEST_CASE("the bytes of a rank's operations are judged by the operations' name",
          "[judge]") {
    const auto passes = [](int products) {
        Grading grading(leaving({1}, products), {solution("", leaving({1}, 2))});
        grading.ask("a1", [](Judge& judge) {
            judge.moved_as_right(one_rank(), "a1", "matmul", {0, 0});
        });
        return grading.judgement(0).mark == Mark::passed;
    };
    CHECK(passes(2));
    CHECK_FALSE(passes(1));
}

TEST_CASE("a grading that errs fails no student", "[judge]") {
    const Tasks throws{{"leave", [](Rank&, const TaskInputs&, TaskOutputs&) {
                            throw UsageError("not so");
                        }}};
    Grading stopped(leaving({1}), {solution("", throws)});
    stopped.ask("a1", ask_values);
    CHECK_THROWS_AS(stopped.judgement(0), GradingError);

    Grading nameless(leaving({1}), {solution("", leaving({1}))});
    nameless.ask("a1", [](Judge& judge) { judge.as_right(one_rank(), {{"sum"}}); });
    CHECK_THROWS_AS(nameless.judgement(0), GradingError);

    Grading unknown(leaving({1}), {solution("", leaving({1}))});
    unknown.ask("a1", ask_values);
    unknown.criteria[0].needs = {"a0"};
    CHECK_THROWS_AS(unknown.judgement(0), GradingError);
}

TEST_CASE("a run is made once, and a run of the same name with other inputs once more",
          "[judge]") {
    const Tasks adds{{"leave", [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
                          const auto sum = static_cast<double>(1 + in.number("more"));
                          out.tensors["values"] =
                              rank.device().upload(HostTensor::of<double>({1}, {sum}));
                      }}};
    const Solution right = solution("", adds);
    SolutionWork work(right, sim::CheckLevel::full);
    const auto left = [&](std::int64_t more) {
        TaskRun run = one_rank();
        run.ranks[0].numbers["more"] = more;
        return &work.run(run);
    };
    CHECK(left(0) == left(0));
    CHECK(left(0)->ranks[0].tensors.at("values").at(0) == 1);
    CHECK(left(1)->ranks[0].tensors.at("values").at(0) == 2);
}

TEST_CASE("a mistake is reported once, at the first criterion that finds it", "[judge]") {
    const std::vector<Solution> known{solution("", leaving({1}, 1)),
                                      solution("that is twice", leaving({2}, 1))};
    Grading wrong(leaving({2}, 2), known);
    wrong.ask("a1", ask_values);
    wrong.ask("a2", ask_flops);
    CHECK(wrong.judgement(1).asked == "flops: 1024 flops");
    wrong.criteria[1].needs = {"a1"};
    CHECK(wrong.judgement(0).said == "that is twice");
    CHECK(wrong.judgement(1).mark == Mark::failed);
    CHECK(wrong.judgement(1).asked == "criterion a1 must be met first");
    CHECK(wrong.judgement(1).said.empty());
    wrong.criteria[1].needs.clear();
    wrong.criteria[1].after = {"a1"};
    CHECK(wrong.judgement(1).asked == "criterion a1 must be met first");

    // If the criterion that is needed passes in its own runs, the report says what is
    // wrong in this run.
    const Tasks twice_elsewhere{
        {"leave", [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
             const double value = in.numbers.contains("elsewhere") ? 2 : 1;
             out.tensors["values"] =
                 rank.device().upload(HostTensor::of<double>({1}, {value}));
         }}};
    Grading elsewhere(twice_elsewhere, known);
    elsewhere.ask("a1-values", ask_values);
    elsewhere.ask("a1-bytes", [](Judge& judge) {
        TaskRun run = one_rank("another run");
        run.ranks[0].numbers["elsewhere"] = 1;
        judge.needs_values(run,
                           [](Judge& asking, const TaskRun& of) { asking.as_right(of); });
    });
    CHECK(elsewhere.judgement(0).mark == Mark::passed);
    CHECK(elsewhere.judgement(1).mark == Mark::failed);
    CHECK(elsewhere.judgement(1).asked ==
          "another run: rank 0: values: 1 as element 0, to 1e-10");
    CHECK(elsewhere.judgement(1).said == "that is twice");

    // If the earlier criterion passes, the later criterion reports its own failure.
    Grading right(leaving({1}, 2), known);
    right.ask("a1", ask_values);
    right.ask("a2", ask_flops);
    right.criteria[1].after = {"a1"};
    CHECK(right.judgement(1).asked == "flops: 1024 flops");
    // A criterion can pass even if an earlier criterion failed.
    Grading slow(leaving({2}, 1), known);
    slow.ask("a1", ask_values);
    slow.ask("a2", ask_flops);
    slow.criteria[1].after = {"a1"};
    CHECK(slow.judgement(1).mark == Mark::passed);
}

// Passes hostile results to every criterion of an assignment. Such results may fail a
// criterion, but must not stop it.
//
// usage: hostile_results SLUG FILES DATA ROUNDS
//
// FILES has the solutions' files that are not C++ (mistakes.py), DATA is the folder of
// the grader's own data. In each round, a criterion gets the reference's results, changed
// on one rank of one run. Other results are right, so the criterion reaches the change.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/solution.hpp"
#include "tests/dice.hpp"

namespace lockstep::lessons {

namespace {

using test::Dice;

HostTensor filled(const Shape& shape, DType dtype, double value) {
    HostTensor tensor(shape, dtype);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, value);
    return tensor;
}

Shape other_shape(const Shape& shape, Dice& dice) {
    const std::int64_t rows = shape.dimensions() > 0 ? shape[0] : 1;
    switch (dice.below(6)) {
        case 0:
            return {1};
        case 1:
            return {0};
        case 2:
            return {shape.elements() + 1};
        case 3:
            return {shape.elements(), 1};
        case 4:
            return shape.dimensions() > 0 ? shape.with_first(rows > 0 ? rows - 1 : 1)
                                          : Shape{2};
        default:
            return {200'000};
    }
}

double odd_value(Dice& dice) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::vector<double> values{std::numeric_limits<double>::quiet_NaN(),
                                     kInfinity,
                                     -kInfinity,
                                     1e300,
                                     -1e300,
                                     0,
                                     -1,
                                     1,
                                     2147483647,
                                     -2147483648.0,
                                     1e-320};
    return values[dice.below(values.size())];
}

/// Returns the value as an i32: within the range of i32, and truncated.
double as_integer(double value) {
    if (!(value >= -2147483648.0)) return -2147483648.0;
    return value > 2147483647 ? 2147483647 : std::trunc(value);
}

void change_values(HostTensor& tensor, Dice& dice) {
    if (tensor.elements() == 0) return;
    const bool all = dice.below(2) == 0;
    const auto place = static_cast<std::int64_t>(
        dice.below(static_cast<std::size_t>(tensor.elements())));
    const double odd = odd_value(dice);
    const double value = tensor.dtype() == DType::i32 ? as_integer(odd) : odd;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        if (all || i == place) tensor.set(i, value);
}

/// Changes the tensor and returns what was changed.
std::string change(HostTensor& tensor, Dice& dice) {
    switch (dice.below(3)) {
        case 0:
            tensor = HostTensor(other_shape(tensor.shape(), dice), tensor.dtype());
            return "has the shape " + tensor.shape().text();
        case 1: {
            const std::vector<DType> types{DType::f32, DType::f64, DType::i32};
            tensor = filled(tensor.shape(), types[dice.below(types.size())], 1);
            return fmt::format("is of {}", name_of(tensor.dtype()));
        }
        default:
            change_values(tensor, dice);
            return "has odd values";
    }
}

std::string change(std::string& text, Dice& dice) {
    switch (dice.below(5)) {
        case 0:
            text.clear();
            return "is empty";
        case 1:
            text.resize(dice.below(text.size() + 1));
            return "is cut";
        case 2:
            text = std::string(300'000, '[');
            return "is long";
        case 3:
            for (int i = 0; i < 20 && !text.empty(); ++i)
                text[dice.below(text.size())] = static_cast<char>(dice.below(256));
            return "has odd bytes";
        default:
            for (char& c : text)
                if (c >= '0' && c <= '9' && dice.below(8) == 0) c = '9';
            return "has other numbers";
    }
}

/// Changes or removes one of the named things.
template <typename Things>
std::string change_one(Things& things, const std::string& kind, Dice& dice) {
    if (things.empty()) return "";
    const auto chosen =
        std::next(things.begin(), static_cast<std::ptrdiff_t>(dice.below(things.size())));
    const std::string name = chosen->first;
    std::string what = "is not there";
    if (dice.below(4) == 0)
        things.erase(chosen);
    else
        what = change(chosen->second, dice);
    return fmt::format("{} '{}' {}", kind, name, what);
}

/// The student's work, with a change in the results of one run.
class ChangedWork final : public StudentWork {
  public:
    /// Changes one of the `runs` runs that the criterion makes.
    ChangedWork(StudentWork& work, std::uint64_t seed, std::size_t runs)
        : work_(work), dice_(seed), changed_run_(runs == 0 ? 0 : dice_.below(runs)) {}

    const TaskResult& run(const TaskRun& run) override {
        return made_.get(run, [&] {
            TaskResult result = work_.run(run);
            if (made_.size() == changed_run_) change_result(result, run.name);
            return result;
        });
    }

    std::string file(const std::string& name) const override {
        std::string text = work_.file(name);
        Dice dice = dice_;
        change(text, dice);
        return text;
    }

    const std::string& story() const { return story_; }

  private:
    void change_result(TaskResult& result, const std::string& name) {
        const std::size_t rank = dice_.below(result.ranks.size());
        RankResult& left = result.ranks[rank];
        if (dice_.below(3) == 0) {
            for (auto& [tensor_name, tensor] : left.tensors)
                change(tensor, dice_);
            story_ = fmt::format("{}: rank {}: all tensors", name, rank);
            if (!left.tensors.empty()) return;
        }
        std::string what = change_one(left.tensors, "tensor", dice_);
        if (what.empty() || dice_.below(3) == 0)
            what += change_one(left.values, "value", dice_);
        what += change_one(left.texts, "text", dice_);
        story_ = fmt::format("{}: rank {}: {}", name, rank, what);
    }

    StudentWork& work_;
    Dice dice_;
    std::size_t changed_run_;
    MadeRuns made_;
    std::string story_;
};

/// The student's work, and the number of runs that a criterion has made.
class CountedWork final : public StudentWork {
  public:
    explicit CountedWork(StudentWork& work) : work_(work) {}

    const TaskResult& run(const TaskRun& run) override {
        return made_.get(run, [&] { return work_.run(run); });
    }
    std::string file(const std::string& name) const override { return work_.file(name); }

    std::size_t runs() const { return made_.size(); }

  private:
    StudentWork& work_;
    MadeRuns made_;
};

class Trial {
  public:
    Trial(const Assignment& assignment, StudentWork& work, GradingSide own)
        : assignment_(assignment), work_(work), own_(std::move(own)) {}

    /// Returns whether no round stopped the criterion and some rounds failed it. The
    /// unchanged reference must pass.
    bool run_all(const Criterion& criterion, std::uint64_t rounds) {
        CountedWork counted(work_);
        if (!is_right(criterion, counted)) return false;
        const int failed_before = failed_;
        bool all = true;
        for (std::uint64_t round = 0; round < rounds; ++round)
            all = run(criterion, round, counted.runs()) && all;
        if (failed_ > failed_before) return all;
        fmt::print("{}: it passed in every round, although each round changed a result\n",
                   criterion.id);
        return false;
    }

    void tell() const {
        fmt::print("{}: {} judgements failed, {} passed\n", assignment_.slug, failed_,
                   passed_);
    }

  private:
    /// Returns whether the criterion gave a judgement.
    bool run(const Criterion& criterion, std::uint64_t seed, std::size_t runs) {
        ChangedWork changed(work_, seed, runs);
        try {
            const Judgement judgement = judged(criterion, changed);
            if (judgement.mark != Mark::not_judged) {
                judgement.mark == Mark::passed ? ++passed_ : ++failed_;
                return true;
            }
            fmt::print("{}: not judged: {}\n", criterion.id, judgement.said);
        } catch (const std::exception& error) {
            fmt::print("{} threw: {}\n", criterion.id, error.what());
        }
        fmt::print("  seed {}; {}\n", seed, changed.story());
        return false;
    }

    /// Returns whether the unchanged reference passes.
    bool is_right(const Criterion& criterion, StudentWork& work) {
        const Judgement judgement = judged(criterion, work);
        if (judgement.mark == Mark::passed) return true;
        fmt::print("{}: asked: {}; measured: {}; {}\n", criterion.id, judgement.asked,
                   judgement.measured, judgement.said);
        return false;
    }

    Judgement judged(const Criterion& criterion, StudentWork& work) {
        const auto index =
            static_cast<std::size_t>(&criterion - assignment_.criteria.data());
        return judgement_of(assignment_, index, Judge(work, own_));
    }

    const Assignment& assignment_;
    StudentWork& work_;
    GradingSide own_;
    int passed_ = 0;
    int failed_ = 0;
};

int try_all(const Assignment& assignment, std::map<std::string, std::string> files,
            const std::filesystem::path& data, std::uint64_t rounds) {
    const std::vector<Solution> solutions = assignment.solutions();
    SolutionWork reference(solutions.at(0), sim::CheckLevel::full, std::move(files));
    Answers answers(solutions);
    Trial trial(assignment, reference, {data, /*secret=*/7, &answers});
    bool all = true;
    for (const Criterion& criterion : assignment.criteria)
        all = trial.run_all(criterion, rounds) && all;
    trial.tell();
    return all ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

}  // namespace lockstep::lessons

int main(int count, char** words) {
    try {
        using namespace lockstep::lessons;
        if (count != 5) return 2;
        std::setvbuf(stdout, nullptr, _IOLBF, 0);
        const auto files = nlohmann::json::parse(std::ifstream(words[2]));
        return try_all(find_assignment(words[1]),
                       files.at(0).get<std::map<std::string, std::string>>(), words[3],
                       std::strtoull(words[4], nullptr, 10));
    } catch (const std::exception& error) {
        std::fputs(error.what(), stderr);
        return 2;
    }
}

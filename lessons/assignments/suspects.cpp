#include "lessons/assignments/suspects.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

bool are_close(const OfRanks& left, const OfRanks& expected, double bound) {
    return std::ranges::equal(left, expected,
                              [&](const HostTensor& got, const HostTensor& wanted) {
                                  return Judge::are_close(got, wanted, bound);
                              });
}

bool have_form(const OfRanks& tensors, const HostTensor& form) {
    return std::ranges::all_of(tensors, [&](const HostTensor& each) {
        return each.shape() == form.shape() && each.dtype() == form.dtype();
    });
}

/// Returns whether the ranks' tensors add up to the tensor that each rank should have.
bool adds_up(const OfRanks& left, const HostTensor& expected, double bound) {
    return left.size() > 1 && have_form(left, expected) &&
           Judge::are_close(weighted_sum(left, std::vector(left.size(), 1.0)), expected,
                            bound);
}

}  // namespace

std::string suspected_sum(const OfRanks& left, const HostTensor& expected, double bound) {
    const std::size_t ranks = left.size();
    if (ranks < 2 || !have_form(left, expected)) return "";
    const auto n = static_cast<double>(ranks);
    const auto all_are = [&](double factor) {
        return are_close(left, {ranks, weighted_sum({expected}, {factor})}, bound);
    };
    // If all ranks have 1/n of the sum, their tensors add up to it: test this case first.
    if (all_are(1 / n)) return "that is the mean over the ranks; the sum is asked";
    if (adds_up(left, expected, bound))
        return "each rank has only its own terms; their sum over the ranks would be "
               "right: an all-reduce is missing";
    if (all_are(n))
        return fmt::format(
            "that is {} times what it should be: it was summed over the ranks once too "
            "often",
            ranks);
    return "";
}

std::function<std::string(const std::string& tensor, const OfRanks& left)> suspected_sums(
    const Judge& judge, const TaskRun& run) {
    return [&](const std::string& tensor, const OfRanks& left) -> std::string {
        OfRanks right;
        for (const RankResult& rank : judge.right(run).ranks)
            right.push_back(rank.tensors.at(tensor));
        // If the right tensors differ between ranks, they are not sums over the ranks.
        const bool is_sum = are_close(right, {right.size(), right.front()}, 0);
        return is_sum ? suspected_sum(left, right.front()) : "";
    };
}

HostTensor weighted_sum(const OfRanks& terms, const std::vector<double>& factors) {
    HostTensor sum(terms.front().shape(), DType::f64);
    const auto to = sum.values<double>();
    for (std::size_t term = 0; term < terms.size(); ++term) {
        const auto values = terms[term].values<double>();
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] += factors[term] * values[i];
    }
    return sum;
}

}  // namespace lockstep::lessons

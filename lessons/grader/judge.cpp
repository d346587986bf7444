#include "lessons/grader/judge.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/report/files.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::lessons {

namespace {

std::string figure_text(std::int64_t value, const std::string& unit) {
    return unit == kPicoseconds ? time_text(value) + " of virtual time"
                                : fmt::format("{} {}", value, unit);
}

constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();

std::string range_text(std::int64_t low, std::int64_t high, const std::string& unit) {
    if (low == high) return figure_text(low, unit);
    if (high == kNoBound) return "at least " + figure_text(low, unit);
    if (low <= 0) return "at most " + figure_text(high, unit);
    if (unit == kPicoseconds)
        return fmt::format("{} to {}", time_text(low), figure_text(high, unit));
    return fmt::format("{} to {} {}", low, high, unit);
}

std::string list_text(const std::vector<std::string>& items) {
    constexpr std::size_t kShown = 4;
    const auto end =
        items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), kShown));
    std::string text = fmt::format("{}", fmt::join(items.begin(), end, "; "));
    if (items.size() > kShown) text += fmt::format("; {} more", items.size() - kShown);
    return text;
}

}  // namespace

void Judge::compare_with(const Solution& other) {
    others_ = std::make_shared<Answers>(std::vector{other});
    own_.answers = others_.get();
}

void Judge::form(const std::string& what, const HostTensor& got, const Shape& shape,
                 DType dtype) {
    if (got.shape() == shape && got.dtype() == dtype) return;
    throw No{Mark::failed, fmt::format("{}: {} x {}", what, shape.text(), name_of(dtype)),
             fmt::format("{} x {}", got.shape().text(), name_of(got.dtype())), ""};
}

const TaskResult& Judge::run(const TaskRun& run) {
    const TaskResult& result = work_.run(run);
    if (result.trouble)
        throw No{result.trouble->mark,
                 fmt::format("a run with {} that finishes", run.name), "",
                 result.trouble->text};
    return result;
}

const HostTensor& Judge::left(const RankResult& rank, const std::string& name) {
    const auto tensor = rank.tensors.find(name);
    if (tensor == rank.tensors.end())
        throw No{Mark::failed, fmt::format("a tensor '{}'", name), "none",
                 "no tensor was returned"};
    return tensor->second;
}

std::string Judge::data(const std::string& name) const {
    constexpr std::uint64_t kLargest = 1 << 20;
    return read_text_file(own_.data / name, kLargest);
}

namespace {

double bound_of(const HostTensor& expected, double bound) {
    double largest = 1;
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        if (std::isfinite(expected.at(i)))
            largest = std::max(largest, std::abs(expected.at(i)));
    return bound * largest;
}

/// Returns the index of the first element that is further away than the bound; -1 if none
/// is.
std::int64_t first_apart(const HostTensor& got, const HostTensor& expected,
                         double bound) {
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        if (got.at(i) != expected.at(i) &&
            !(std::abs(got.at(i) - expected.at(i)) <= bound))
            return i;
    return -1;
}

/// Returns a sentence if `got` looks as if nothing was computed.
std::string cause_of_nothing(const HostTensor& got) {
    bool zeros = true;
    for (std::int64_t i = 0; i < got.elements(); ++i) {
        if (std::isnan(got.at(i)))
            return "a value is NaN: new memory is NaN until something is written there; "
                   "was it read, or added to, before that?";
        zeros = zeros && got.at(i) == 0;
    }
    return zeros ? "all of it is 0" : "";
}

}  // namespace

void Judge::close(const std::string& what, const HostTensor& got,
                  const HostTensor& expected, double bound) {
    form(what, got, expected.shape(), expected.dtype());
    const double most = bound_of(expected, bound);
    const std::int64_t i = first_apart(got, expected, most);
    if (i < 0) return;
    throw No{Mark::failed,
             fmt::format("{}: {:.12g} as element {}, to {:.0e}", what, expected.at(i), i,
                         most),
             std::isnan(got.at(i)) ? "nan" : fmt::format("{:.12g}", got.at(i)),
             cause_of_nothing(got)};
}

bool Judge::are_close(const HostTensor& got, const HostTensor& expected, double bound) {
    return got.shape() == expected.shape() && got.dtype() == expected.dtype() &&
           first_apart(got, expected, bound_of(expected, bound)) < 0;
}

void Judge::same(const std::string& what, const HostTensor& got,
                 const HostTensor& expected) {
    form(what, got, expected.shape(), expected.dtype());
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        if (std::bit_cast<std::uint64_t>(got.at(i)) !=
            std::bit_cast<std::uint64_t>(expected.at(i)))
            throw No{Mark::failed,
                     fmt::format("{}: {:.17g} as element {}, bit for bit", what,
                                 expected.at(i), i),
                     fmt::format("{:.17g}", got.at(i)), ""};
}

void Judge::figure(const std::string& name, const std::string& unit,
                   std::int64_t expected, std::int64_t measured, Allowed allowed,
                   const Advice& advice) {
    const std::int64_t low = expected - (expected * allowed.percent_less + 99) / 100;
    const std::int64_t high =
        allowed.percent_more == kAnyMore
            ? kNoBound
            : expected + (expected * allowed.percent_more + 99) / 100;
    ask(measured >= low && measured <= high,
        fmt::format("{}: {}", name, range_text(low, high, unit)),
        figure_text(measured, unit), measured > high ? advice.less : advice.more);
}

namespace {

/// Returns each rank's tensor with that name; an empty tensor for a rank without it.
std::vector<HostTensor> on_ranks(const TaskResult& result, const std::string& tensor) {
    std::vector<HostTensor> left;
    for (const RankResult& rank : result.ranks) {
        const auto found = rank.tensors.find(tensor);
        left.push_back(found == rank.tensors.end() ? HostTensor() : found->second);
    }
    return left;
}

bool cost_the_same(const RunReport& a, const RunReport& b) {
    const auto same = [](const RankReport& one, const RankReport& other) {
        return one.bytes_sent() == other.bytes_sent() &&
               one.messages_sent() == other.messages_sent() &&
               one.memory.peak == other.memory.peak;
    };
    return a.makespan() == b.makespan() && std::ranges::equal(a.ranks, b.ranks, same);
}

}  // namespace

void Judge::as_right(const TaskRun& run, const AskedValues& asked) {
    std::set<std::string> names(asked.tensors.begin(), asked.tensors.end());
    if (names.empty())
        for (const RankResult& rank : right(run).ranks)
            for (const auto& [name, values] : rank.tensors)
                names.insert(name);
    if (names.empty()) throw GradingError(run.name + ": the reference leaves no tensors");
    for (const std::string& name : names)
        tensor_as_right(run, name, asked);
    if (asked.same_on_ranks)
        for (const std::string& name : names)
            same_on_ranks(run, name, asked);
}

namespace {

/// Returns "3 ranks: rank 2: y".
std::string text_of(const TaskRun& run, std::size_t rank, const std::string& tensor,
                    const AskedValues& asked) {
    return fmt::format("{}: rank {}: {}", run.name, rank,
                       asked.called ? asked.called(tensor) : tensor);
}

}  // namespace

void Judge::same_on_ranks(const TaskRun& run, const std::string& name,
                          const AskedValues& asked) {
    const std::vector<RankResult>& ranks = this->run(run).ranks;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
        same(text_of(run, rank, name, asked) + " as on rank 0", left(ranks[rank], name),
             left(ranks.front(), name));
}

void Judge::given_as_before(const TaskRun& run) {
    AskedValues asked;
    for (const auto& [name, tensor] : run.ranks.front().tensors)
        asked.tensors.push_back(name);
    asked.called = [](const std::string& name) { return name + " after the call"; };
    asked.bound = 0;
    as_right(run, asked);
}

void Judge::tensor_as_right(const TaskRun& run, const std::string& name,
                            const AskedValues& asked) {
    const TaskResult& result = this->run(run);
    const TaskResult& expected = right(run);
    bool compared = false;
    for (std::size_t rank = 0; rank < expected.ranks.size(); ++rank) {
        const auto wanted = expected.ranks[rank].tensors.find(name);
        if (wanted == expected.ranks[rank].tensors.end()) continue;
        compared = true;
        const HostTensor& got = left(result.ranks[rank], name);
        try {
            close(text_of(run, rank, name, asked), got, wanted->second, asked.bound);
        } catch (No& no) {
            if (explains_) no.explain(cause_of(run, name, result, asked));
            throw;
        }
    }
    if (!compared)
        throw GradingError(
            fmt::format("{}: the reference leaves no '{}'", run.name, name));
}

std::string Judge::cause_of(const TaskRun& run, const std::string& name,
                            const TaskResult& result, const AskedValues& asked) const {
    const std::vector<HostTensor> left = on_ranks(result, name);
    std::string cause = asked.cause ? asked.cause(name, left) : "";
    if (!cause.empty()) return cause;
    return mistake(run, [&](const TaskResult& mistaken) {
        return std::ranges::equal(left, on_ranks(mistaken, name),
                                  [&](const HostTensor& one, const HostTensor& other) {
                                      return are_close(one, other, asked.bound);
                                  });
    });
}

void Judge::figure_as_right(const TaskRun& run, const std::string& name,
                            const std::string& unit,
                            const std::function<std::int64_t(const RunReport&)>& measure,
                            Allowed allowed, const Advice& advice) {
    const RunReport& report = this->run(run).report;
    try {
        figure(name, unit, measure(right(run).report), measure(report), allowed, advice);
    } catch (No& no) {
        if (no.said.empty() && explains_)
            no.explain(mistake(run, [&](const TaskResult& mistaken) {
                return measure(mistaken.report) == measure(report) &&
                       cost_the_same(mistaken.report, report);
            }));
        throw;
    }
}

namespace {

std::string of_rank(const TaskRun& run, const std::string& exercise, std::size_t rank,
                    const std::string& what) {
    return fmt::format("{}: {}: rank {}: {}", exercise, run.name, rank, what);
}

constexpr RankFigure kReceived{"received", "bytes", [](const RankReport& rank) {
                                   std::int64_t bytes = 0;
                                   for (const Traffic& traffic : rank.traffic)
                                       bytes += traffic.bytes_received;
                                   return bytes;
                               }};

}  // namespace

void Judge::figures_as_right(const TaskRun& run, const std::string& exercise,
                             const std::vector<AskedFigure>& figures) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        for (const AskedFigure& asked : figures)
            rank_as_right(run, exercise, rank, asked);
}

void Judge::rank_as_right(const TaskRun& run, const std::string& exercise,
                          std::size_t rank, const AskedFigure& asked) {
    const auto value = [&](const RunReport& report) {
        return asked.figure.value(report.ranks[rank]);
    };
    try {
        figure_as_right(run, of_rank(run, exercise, rank, asked.figure.name),
                        asked.figure.unit, value, asked.allowed,
                        {asked.less, asked.more});
    } catch (No& no) {
        const bool is_memory = asked.figure.unit == std::string_view(kPeak.unit);
        if (is_memory && explains_ &&
            value(this->run(run).report) > value(right(run).report)) {
            const std::string held = held_at_peak(run, rank);
            no.said =
                no.said.empty() || held.empty() ? held + no.said : held + ". " + no.said;
        }
        throw;
    }
}

/// Runs the task once more, and gives the rank too little memory for its peak: then the
/// simulator says what fills the device.
std::string Judge::held_at_peak(const TaskRun& run, std::size_t rank) const {
    constexpr std::size_t kShown = 3;
    const std::int64_t peak = work_.run(run).report.ranks[rank].memory.peak;
    TaskRun smaller = run;
    smaller.name += fmt::format(", rank {} in less memory than its peak", rank);
    smaller.memory_of_rank[static_cast<int>(rank)] = peak - 1;
    const TaskResult& result = work_.run(smaller);
    if (!result.trouble || result.trouble->held.empty()) return "";
    const std::vector<std::string>& held = result.trouble->held;
    return fmt::format("of the {} bytes at the peak, most are {}{}", peak,
                       fmt::join(held.begin(),
                                 held.begin() + static_cast<std::ptrdiff_t>(
                                                    std::min(held.size(), kShown)),
                                 "; "),
                       held.size() > kShown ? "; and others" : "");
}

void Judge::traffic_as_right(const TaskRun& run, const std::string& exercise,
                             Allowed allowed) {
    figures_as_right(run, exercise,
                     {{kMessages}, {kSent, allowed}, {kReceived, allowed}});
}

void Judge::verbs_as_right(const TaskRun& run, const std::string& exercise) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        std::set<std::string> verbs;
        for (const RunReport* report : {&right(run).report, &this->run(run).report})
            for (const Traffic& traffic : report->ranks[rank].traffic)
                verbs.insert(traffic.verb);
        for (const std::string& verb : verbs)
            figure_as_right(run, of_rank(run, exercise, rank, "sent by " + verb), "bytes",
                            [&](const RunReport& report) {
                                return report.ranks[rank].bytes_sent_by(verb);
                            });
    }
}

void Judge::time_as_right(const TaskRun& run, const std::string& exercise,
                          Allowed allowed, const Advice& advice) {
    figure_as_right(
        run, fmt::format("{}: {}: time", exercise, run.name), kPicoseconds,
        [](const RunReport& report) { return report.makespan(); }, allowed, advice);
}

void Judge::moved_as_right(const TaskRun& run, const std::string& exercise,
                           const std::string& operation, Allowed allowed,
                           const Advice& advice) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        figure_as_right(
            run, of_rank(run, exercise, rank, "read and written by " + operation),
            "bytes",
            [&](const RunReport& report) {
                std::int64_t bytes = 0;
                for (const TraceEvent& event : report.trace)
                    if (event.rank == static_cast<int>(rank) && event.name == operation)
                        bytes += event.bytes;
                return bytes;
            },
            allowed, advice);
}

void Judge::needs(const std::string& id,
                  const std::function<void(Judge&)>& before) const {
    Judge asking = *this;
    asking.explains_ = false;
    try {
        before(asking);
    } catch (const No& no) {
        if (no.mark == Mark::not_written) throw;
        if (passes(id)) {
            Judge explaining = *this;
            before(explaining);
        }
        throw No{no.mark, fmt::format("criterion {} must be met first", id), "", ""};
    }
}

bool Judge::meets(const std::function<void(Judge&)>& asked) const {
    try {
        Judge asking = *this;
        asking.explains_ = false;
        asked(asking);
        return true;
    } catch (const No&) {
        return false;
    } catch (const UsageError&) {
        return false;
    } catch (const FaultError&) {
        return false;
    }
}

void Judge::needs_values(
    const TaskRun& run, const std::function<void(Judge&, const TaskRun&)>& values) const {
    needs(exercise() + "-values", [&](Judge& asking) {
        asking.run(run);
        if (values) values(asking, run);
    });
}

void Judge::by_send_and_recv(const std::string& name, const RunReport& report) {
    const auto ask_verb = [&](bool allowed, const std::string& verb) {
        ask(allowed, name + ": messages only by send, recv and group()", verb + "()",
            "the handout allows only send, recv and group()");
    };
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            ask_verb(traffic.verb == "send" || traffic.verb == "recv", traffic.verb);
    // Its messages count as sends and recvs; only the trace has its name.
    for (const TraceEvent& event : report.trace)
        if (event.kind == "communication" && event.name == "all_to_all_v")
            ask_verb(false, event.name);
}

namespace {

/// Returns the distance from a message's sender to its receiver, in ranks.
int step_of(Judge::Way way, int ranks) {
    return way == Judge::Way::to_next ? 1 : ranks - 1;
}

const char* text_of(Judge::Way way) {
    return way == Judge::Way::to_next ? "the next rank" : "the rank before";
}

Judge::Way opposite(Judge::Way way) {
    return way == Judge::Way::to_next ? Judge::Way::to_rank_before : Judge::Way::to_next;
}

}  // namespace

const TaskResult& Judge::run_ring(const TaskRun& run, Way way) {
    const TaskResult& tried = work_.run(run);  // its report ends at a fault
    const std::string said =
        tried.trouble ? other_way(tried.report, static_cast<int>(run.ranks.size()), way)
                      : "";
    if (!said.empty())
        ask(false, fmt::format("{}: messages to {}", run.name, text_of(way)),
            fmt::format("messages to {}", text_of(opposite(way))), said);
    const TaskResult& result = this->run(run);
    by_send_and_recv(run.name, result.report);
    return result;
}

void Judge::one_way(const std::string& name, const RunReport& report, Way way) {
    by_send_and_recv(name, report);
    const int ranks = static_cast<int>(report.ranks.size());
    for (const TraceFlow& flow : report.flows)
        ask((flow.source_rank + step_of(way, ranks)) % ranks == flow.destination_rank,
            fmt::format("{}: messages to {}", name, text_of(way)),
            fmt::format("one from rank {} to rank {}", flow.source_rank,
                        flow.destination_rank),
            other_way(report, ranks, way));
}

std::string Judge::other_way(const RunReport& report, int ranks, Way way) {
    if (ranks < 3 || report.flows.empty()) return "";
    const int step = step_of(opposite(way), ranks);
    for (const TraceFlow& flow : report.flows)
        if ((flow.source_rank + step) % ranks != flow.destination_rank) return "";
    return fmt::format(
        "the ring turns the other way: rank {} sends to rank {}, and each rank should "
        "send to {}",
        report.flows[0].source_rank, report.flows[0].destination_rank, text_of(way));
}

void Judge::ask(bool answer, const std::string& asked, const std::string& measured,
                const std::string& said) {
    if (!answer) throw No{Mark::failed, asked, measured, said};
    asked_.push_back(asked);
    measured_.push_back(measured);
}

std::int64_t Judge::draw(const std::string& name, std::int64_t low,
                         std::int64_t high) const {
    const RandomStream stream(own_.secret, "draw/" + name);
    return low + static_cast<std::int64_t>(stream.bits(0) %
                                           static_cast<std::uint64_t>(high - low + 1));
}

HostTensor Judge::normal(const std::string& name, const Shape& shape) const {
    const RandomStream stream(own_.secret, name);
    HostTensor values(shape, DType::f64);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    return values;
}

std::string Judge::asked() const {
    return list_text(asked_);
}

std::string Judge::measured() const {
    return list_text(measured_);
}

namespace {

const Criterion& criterion_of(const Assignment& assignment, const std::string& id) {
    const auto found = std::ranges::find(assignment.criteria, id, &Criterion::id);
    if (found == assignment.criteria.end())
        throw GradingError(fmt::format("{} has no criterion {}", assignment.slug, id));
    return *found;
}

void judge_criterion(const Assignment& assignment, const Criterion& criterion,
                     Judge& judge) {
    const auto need = [&](const std::string& id) {
        judge.needs(id, [&](Judge& asking) {
            judge_criterion(assignment, criterion_of(assignment, id), asking);
        });
    };
    for (const std::string& id : criterion.needs)
        need(id);
    judge.set_criterion(criterion.id);
    try {
        criterion.judge(judge);
    } catch (const Judge::No& no) {
        if (no.mark == Mark::not_written) throw;
        for (const std::string& id : criterion.after)
            need(id);
        throw;
    }
}

}  // namespace

bool Judge::passes(const std::string& id) const {
    if (assignment_ == nullptr) return false;
    const auto found = std::ranges::find(assignment_->criteria, id, &Criterion::id);
    if (found == assignment_->criteria.end()) return false;
    return meets([&](Judge& asking) {
        asking.assignment_ =
            nullptr;  // the criterion may need the one that is judged now
        judge_criterion(*assignment_, *found, asking);
    });
}

Judgement judgement_of(const Assignment& assignment, std::size_t index, Judge judge) {
    judge.set_assignment(assignment);
    try {
        judge_criterion(assignment, assignment.criteria[index], judge);
        return {Mark::passed, judge.asked(), judge.measured(), ""};
    } catch (const Judge::No& no) {
        return {no.mark, no.asked, no.measured, no.said};
    } catch (const UsageError& error) {
        return {Mark::failed, "", "", error.what()};
    } catch (const FaultError& fault) {
        return {Mark::failed, "", "", fault.diagnosis().text(kDiagnosisColumns)};
    }
}

}  // namespace lockstep::lessons

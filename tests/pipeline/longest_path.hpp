// Finds the times of a schedule's instructions as longest paths in a graph of
// dependences. Uses only the rules in src/pipeline/timer.hpp, and none of the library's
// own code for times.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "src/pipeline/timer.hpp"

namespace lockstep::test {

/// In which queue a stage runs its messages.
enum class Queues {
    beside_work,  ///< a separate queue, in order
    one_for_all   ///< one queue with the computations, which wait for messages
};

class LongestPath {
  public:
    /// The schedule must have each computation and each message once, and must outlive
    /// this object.
    LongestPath(const Schedule& schedule, ScheduleTimes times,
                Queues queues = Queues::beside_work);

    /// Returns whether any instruction waits for itself.
    bool deadlock() const { return deadlock_; }
    /// The times of every instruction; both ends of a message have the same time span.
    const std::vector<std::vector<TimeSpan>>& spans() const { return spans_; }
    Picoseconds makespan() const;

    /// Returns whether `later` can begin only after `earlier`, directly or through other
    /// instructions.
    bool waits_for(Place later, Place earlier) const;
    /// Returns whether `earlier` is a reason why `later` begins no sooner: whether a path
    /// of dependences leads from the end of `earlier` to the start of `later` without a
    /// pause, through instructions that take no time. Without `earlier`, the path begins
    /// at time 0. Without `later`, it ends at the makespan.
    bool lets_begin(std::optional<Place> earlier, std::optional<Place> later) const;

  private:
    /// A datum: whether it is a gradient, which part needs it, and its micro-batch.
    using Data = std::tuple<bool, int, int>;
    struct Edge {
        int from = 0;
        Picoseconds gap = 0;
    };
    struct Node {
        Picoseconds duration = 0;
        std::vector<Edge> after;
        Picoseconds start = 0;

        Picoseconds end() const { return start + duration; }
    };

    /// Both ends of a message, if the schedule has them.
    struct Message {
        Place send;
        Place recv;
        int node = -1;
    };

    const Durations& durations(Place place) const;
    Picoseconds time_alone(Place place) const;
    Picoseconds time_between(Place from, Place to) const;
    std::optional<Data> made_by(Place place) const;
    Data carried_by(Place place) const;
    int add_node(Picoseconds duration);
    int node(Place place) const {
        return nodes_of_[static_cast<std::size_t>(place.stage)]
                        [static_cast<std::size_t>(place.position)];
    }
    std::vector<Edge>& after(int node) {
        return nodes_[static_cast<std::size_t>(node)].after;
    }
    void find_data();
    void add_nodes(int stage);
    void add_pair(Place first, Place second);
    void join_program(int stage, Queues queues);
    int join_group(const std::vector<Place>& group, int work, int before);
    std::pair<int, bool> queue_of(Place message) const;
    void join_need(Place place);
    void follow();
    void add_causes(const Node& later, std::vector<int>& open) const;
    std::vector<int> last_to_end() const;

    const Schedule& schedule_;
    ScheduleTimes times_;
    std::map<Data, Place> makers_;
    std::map<Data, Message> messages_;
    std::map<Place, int, bool (*)(Place, Place)> group_ends_;  ///< by receive
    std::map<std::pair<int, int>, int> meetings_;              ///< by part and number
    std::vector<std::vector<int>> nodes_of_;
    std::vector<Node> nodes_;
    std::vector<std::vector<TimeSpan>> spans_;
    bool deadlock_ = false;
};

/// Returns whether each place in the cycle waits for the next place, and the last place
/// waits for the first.
bool cycle_is_real(const Schedule& schedule, const std::vector<Place>& cycle);

}  // namespace lockstep::test

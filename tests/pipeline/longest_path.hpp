// When a schedule's instructions happen, found as the longest path through a graph of
// what waits for what: from the rules in src/pipeline/timer.hpp alone, with nothing of
// the library's index or walk.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "src/pipeline/timer.hpp"

namespace lockstep::test {

/// How a stage serves its messages.
enum class Queues {
    beside_work,  ///< in one queue of their own, in order
    one_for_all   ///< in order with the computations, which they hold up
};

class LongestPath {
  public:
    /// Each computation and each message must be there once. The schedule must stay.
    LongestPath(const Schedule& schedule, ScheduleTimes times,
                Queues queues = Queues::beside_work);

    /// Whether anything waits for itself.
    bool deadlock() const { return deadlock_; }
    /// Of every instruction; both ends of a message have one.
    const std::vector<std::vector<TimeSpan>>& spans() const { return spans_; }
    Picoseconds makespan() const;

    /// Whether `later` can only begin after `earlier`, directly or through others.
    bool waits_for(Place later, Place earlier) const;
    /// Whether `earlier` is why `later` begins no sooner: from one's end, what waits for
    /// what leads to the other's start without a pause, through instructions that take no
    /// time. Without `earlier`, from time 0; without `later`, to the makespan.
    bool lets_begin(std::optional<Place> earlier, std::optional<Place> later) const;

  private:
    /// Data: whether it is a gradient, the part that needs it, its micro-batch.
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

    /// Both ends of a message, as far as they are there.
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
    void add_causes(const Node& of, std::vector<int>& open) const;
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

/// Whether there is a cycle in which each waits for the next, the last for the first.
bool cycle_is_real(const Schedule& schedule, const std::vector<Place>& cycle);

}  // namespace lockstep::test

#include "src/report/wait_boxes.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep {

namespace {

/// What the diagnosis says of a rank that does not wait: "has ended".
std::string activity_of(const Diagnosis& diagnosis, int rank) {
    for (const auto* parties : {&diagnosis.parties, &diagnosis.others})
        for (const Diagnosis::Party& party : *parties)
            if (std::ranges::find(party.ranks, rank) != party.ranks.end())
                return party.operation;
    return "is somewhere else";
}

std::map<int, std::size_t> box_by_rank(const std::vector<WaitBox>& boxes) {
    std::map<int, std::size_t> by_rank;
    for (std::size_t i = 0; i < boxes.size(); ++i)
        for (const int rank : boxes[i].ranks)
            by_rank.emplace(rank, i);
    return by_rank;
}

/// Ranks that are waited for and wait for none, those of one activity together.
void add_idle(std::vector<WaitBox>& boxes, const Diagnosis& diagnosis) {
    const std::map<int, std::size_t> known = box_by_rank(boxes);
    std::set<int> idle;
    for (const Diagnosis::Wait& wait : diagnosis.waits)
        for (const int rank : wait.to)
            if (!known.contains(rank)) idle.insert(rank);
    std::map<std::string, std::vector<int>> by_activity;
    for (const int rank : idle)
        by_activity[activity_of(diagnosis, rank)].push_back(rank);
    for (auto& [activity, ranks] : by_activity) {
        WaitBox box;
        box.ranks = std::move(ranks);
        box.operation = activity;
        box.waits = false;
        boxes.push_back(std::move(box));
    }
}

void connect(std::vector<WaitBox>& boxes, const std::vector<Diagnosis::Wait>& waits) {
    const std::map<int, std::size_t> by_rank = box_by_rank(boxes);
    for (std::size_t i = 0; i < waits.size(); ++i) {
        std::set<std::size_t> next;
        for (const int rank : waits[i].to)
            next.insert(by_rank.at(rank));
        boxes[i].next.assign(next.begin(), next.end());
    }
}

/// Down the left, up the right.
void place_circle(std::vector<WaitBox>& boxes, const std::vector<std::size_t>& circle) {
    const std::size_t left = (circle.size() + 1) / 2;
    for (std::size_t i = 0; i < circle.size(); ++i) {
        WaitBox& box = boxes[circle[i]];
        box.in_circle = true;
        box.column = i < left ? 0 : 1;
        box.row = i < left ? i : circle.size() - 1 - i;
    }
}

/// The others, by how many waits they are away from those in `placed`, which are in the
/// columns before `column`.
void place_rest(std::vector<WaitBox>& boxes, std::set<std::size_t> placed,
                std::size_t column) {
    while (placed.size() < boxes.size()) {
        std::vector<std::size_t> layer;
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            const auto& next = boxes[i].next;
            if (!placed.contains(i) && std::ranges::any_of(next, [&](std::size_t to) {
                    return placed.contains(to);
                }))
                layer.push_back(i);
        }
        if (layer.empty())  // they have a circle of their own
            for (std::size_t i = 0; i < boxes.size(); ++i)
                if (!placed.contains(i)) layer.push_back(i);
        for (std::size_t row = 0; row < layer.size(); ++row) {
            boxes[layer[row]].column = column;
            boxes[layer[row]].row = row;
            placed.insert(layer[row]);
        }
        ++column;
    }
}

}  // namespace

std::vector<WaitBox> wait_boxes(const Diagnosis& diagnosis) {
    std::vector<WaitBox> boxes;
    for (const Diagnosis::Wait& wait : diagnosis.waits) {
        WaitBox box;
        box.ranks = wait.from;
        box.operation = wait.operation;
        if (wait.at.line > 0) box.place = wait.at.text();
        boxes.push_back(std::move(box));
    }
    add_idle(boxes, diagnosis);
    connect(boxes, diagnosis.waits);
    std::vector<std::size_t> first = circle_of(diagnosis.waits);
    place_circle(boxes, first);
    std::size_t columns = first.size() > 1 ? 2 : 1;
    if (first.empty()) {
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            if (boxes[i].waits) continue;
            boxes[i].row = first.size();
            first.push_back(i);
        }
        columns = first.empty() ? 0 : 1;
    }
    place_rest(boxes, {first.begin(), first.end()}, columns);
    return boxes;
}

}  // namespace lockstep

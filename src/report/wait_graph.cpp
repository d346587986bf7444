#include "src/report/wait_graph.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "src/chart/svg.hpp"
#include "src/report/timeline.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

/// Returns what the diagnosis says about a rank that does not wait, such as "has ended".
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

/// Adds boxes for ranks that do not wait but for which others wait: one for each
/// activity.
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

/// Places the circle: down the left column, up the right one.
void place_circle(std::vector<WaitBox>& boxes, const std::vector<std::size_t>& circle) {
    const std::size_t left = (circle.size() + 1) / 2;
    for (std::size_t i = 0; i < circle.size(); ++i) {
        WaitBox& box = boxes[circle[i]];
        box.in_circle = true;
        box.column = i < left ? 0 : 1;
        box.row = i < left ? i : circle.size() - 1 - i;
    }
}

/// Places the other boxes by their distance, in waits, from the boxes in `placed`. The
/// placed boxes are in the columns before `column`.
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
        if (layer.empty())  // the rest wait for no placed box
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

constexpr double kMargin = 24;
constexpr double kWidth = 330;  // of a box
constexpr double kHeight = 62;
constexpr double kColumn = 430;  // from one column to the next
constexpr double kRow = 108;
constexpr double kLeastWidth = 1180;
constexpr int kLetters = 46;  // letters that fit into a box

struct Stroke {
    Meaning meaning;
    const char* width;
    const char* dashes;
    const char* head;  ///< the marker at an arrow's end
    const char* words;
};
constexpr Stroke kCircle{Meaning::circle, "3", "none", "wait-circle",
                         "waits in the circle"};
constexpr Stroke kWaits{Meaning::waiting, "1.5", "none", "wait-arrow", "waits"};
constexpr Stroke kRests{Meaning::resting, "1.5", "5 3", "wait-arrow",
                        "waits for no other rank"};

const Stroke& stroke_of(const WaitBox& box) {
    return box.in_circle ? kCircle : box.waits ? kWaits : kRests;
}

/// Returns the colour of the inside of a box.
std::string fill_of(const Stroke& stroke) {
    return colour_of(stroke.meaning).lighter(0.88).hex();
}

/// Places on the picture.
class Plan {
  public:
    explicit Plan(double top) : top_(top) {}
    double left(const WaitBox& box) const {
        return kMargin + 40 + static_cast<double>(box.column) * kColumn;
    }
    double top(const WaitBox& box) const {
        return top_ + static_cast<double>(box.row) * kRow;
    }
    double middle(const WaitBox& box) const { return top(box) + kHeight / 2; }

  private:
    double top_;
};

/// Returns the end of the text, at most `most` columns.
std::string end_of(std::string text, int most) {
    if (columns_of(text) <= most) return text;
    while (columns_of(text) >= most)
        text.erase(0, bytes_in_columns(text, 1));
    return "…" + text;
}

std::string box_svg(const WaitBox& box, const Plan& plan) {
    const Stroke& stroke = stroke_of(box);
    const double x = plan.left(box);
    const double y = plan.top(box);
    std::string svg = fmt::format(
        "<g><title>{}</title>\n<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"6\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-dasharray=\"{}\"/>\n",
        xml_escaped(ranks_text(box.ranks) + "\n" + box.operation + "\n" + box.place),
        svg_number(x), svg_number(y), svg_number(kWidth), svg_number(kHeight),
        fill_of(stroke), colour_of(stroke.meaning).hex(), stroke.width, stroke.dashes);
    svg += svg_text(x + 10, y + 19, clipped(ranks_text(box.ranks), kLetters - 8), "h");
    svg += svg_text(x + 10, y + 36, clipped(box.operation, kLetters));
    svg += svg_text(x + 10, y + 52, end_of(box.place, kLetters));
    return svg + "</g>\n";
}

struct Point {
    double x;
    double y;
};

std::string curve(Point from, Point bent, Point bent_too, Point to) {
    std::string path;
    for (const auto& [command, point] :
         {std::pair{'M', from}, {'C', bent}, {' ', bent_too}, {' ', to}})
        path += fmt::format("{}{} {}", command, svg_number(point.x), svg_number(point.y));
    return path;
}

/// Returns the path between two boxes of one column.
std::string path_along(const WaitBox& from, const WaitBox& to, const Plan& plan) {
    constexpr double kApart = 9;
    constexpr double kOut = 44;
    const double y1 = plan.middle(from);
    const double y2 = plan.middle(to);
    const double left = plan.left(from);
    if (from.row == to.row)
        return curve({left, y1 + 12}, {left - kOut, y1 + 22}, {left - kOut, y1 - 22},
                     {left, y1 - 12});
    const bool down = to.row > from.row;
    if (std::max(from.row, to.row) - std::min(from.row, to.row) > 1) {
        const double x = left + (down ? 0 : kWidth);
        const double out = x + (down ? -kOut : kOut);
        return curve({x, y1}, {out, y1}, {out, y2}, {x, y2});
    }
    const double x = left + kWidth / 2 + (down ? -kApart : kApart);
    const double half = down ? kHeight / 2 : -kHeight / 2;
    return curve({x, y1 + half}, {x, y1 + half}, {x, y2 - half}, {x, y2 - half});
}

/// Returns the path from one box's edge to the other's. Two boxes that wait for each
/// other have two arrows side by side.
std::string path_of(const WaitBox& from, const WaitBox& to, const Plan& plan) {
    if (from.column == to.column) return path_along(from, to, plan);
    const bool right = to.column > from.column;
    const std::size_t columns = right ? to.column - from.column : from.column - to.column;
    if (from.row == to.row && columns > 1) {  // the arrow passes over boxes in between
        const double x1 = plan.left(from) + kWidth / 2;
        const double x2 = plan.left(to) + kWidth / 2;
        const double top = plan.top(from);
        return curve({x1, top}, {x1, top - 26}, {x2, top - 26}, {x2, top});
    }
    const double shift = right ? -9 : 9;
    const double y1 = plan.middle(from) + shift;
    const double y2 = plan.middle(to) + shift;
    const double x1 = plan.left(from) + (right ? kWidth : 0);
    const double x2 = plan.left(to) + (right ? 0 : kWidth);
    const double bend = right ? 50 : -50;
    return curve({x1, y1}, {x1 + bend, y1}, {x2 - bend, y2}, {x2, y2});
}

std::string arrows_svg(const std::vector<WaitBox>& boxes, const Plan& plan) {
    std::string svg;
    for (const WaitBox& from : boxes) {
        for (const std::size_t next : from.next) {
            const bool circle = from.in_circle && boxes[next].in_circle;
            const Stroke& stroke = circle ? kCircle : kWaits;
            svg += fmt::format(
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
                "marker-end=\"url(#{})\"/>\n",
                path_of(from, boxes[next], plan), colour_of(stroke.meaning).hex(),
                stroke.width, stroke.head);
        }
    }
    return svg;
}

std::string marker(const Stroke& stroke) {
    return fmt::format(
        "<marker id=\"{}\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" "
        "markerUnits=\"userSpaceOnUse\" markerWidth=\"11\" markerHeight=\"11\" "
        "orient=\"auto\"><path d=\"M0 0L10 5L0 10Z\" fill=\"{}\"/></marker>",
        stroke.head, colour_of(stroke.meaning).hex());
}

/// Explains the colours that are used.
std::string legend_svg(const std::vector<WaitBox>& boxes, double y) {
    std::string svg;
    double x = kMargin + 40;
    for (const Stroke* stroke : {&kCircle, &kWaits, &kRests}) {
        const auto is_this = [&](const WaitBox& box) {
            return &stroke_of(box) == stroke;
        };
        if (std::ranges::none_of(boxes, is_this)) continue;
        svg += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" fill=\"{}\" "
            "stroke=\"{}\" stroke-dasharray=\"{}\"/>\n",
            svg_number(x), svg_number(y), fill_of(*stroke),
            colour_of(stroke->meaning).hex(), stroke->dashes);
        svg += svg_text(x + 20, y + 10, stroke->words);
        x += 170;
    }
    return svg + svg_text(x, y + 10, "an arrow points to the ranks that are waited for");
}

/// Title and sentence; moves `y` below them.
std::string heading_svg(const Diagnosis& diagnosis, double& y) {
    constexpr int kColumns = 165;
    std::string svg = svg_text(
        kMargin, y,
        (diagnosis.fault.empty() ? "" : diagnosis.fault + ": ") + diagnosis.title, "h");
    std::istringstream lines(wrapped(diagnosis.sentence, kColumns));
    for (std::string line; std::getline(lines, line);)
        svg += svg_text(kMargin, y += 18, line);
    y += 30;
    return svg;
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

std::string wait_svg(const Diagnosis& diagnosis, const RunReport* report) {
    const std::vector<WaitBox> boxes = wait_boxes(diagnosis);
    double y = 30;
    std::string body = heading_svg(diagnosis, y);
    const Plan plan(y);
    double width = kLeastWidth;
    for (const WaitBox& box : boxes) {
        width = std::max(width, plan.left(box) + kWidth + 60);
        y = std::max(y, plan.top(box) + kRow);
    }
    body += arrows_svg(boxes, plan);
    for (const WaitBox& box : boxes)
        body += box_svg(box, plan);
    body +=
        boxes.empty() ? svg_text(kMargin, y, "No rank waited.") : legend_svg(boxes, y);
    y += 32;
    if (report != nullptr && !report->trace.empty()) {
        const SvgPart timeline = chart_part(timeline_chart(*report, "up to the stop"));
        body += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", svg_number(y),
                            timeline.svg);
        width = std::max(width, timeline.width);
        y += timeline.height;
    }
    return svg_document({width, y, body},
                        "<defs>" + marker(kCircle) + marker(kWaits) + "</defs>\n");
}

}  // namespace lockstep

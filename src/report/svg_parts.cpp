#include "src/report/svg_parts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/report/timeline_look.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr double kLetterWidth = 6.2;

std::string tooltip(const SvgBox& box) {
    const std::string times =
        fmt::format("{} to {} ({})", time_text(box.start), time_text(box.end),
                    time_text(box.end - box.start));
    if (box.count > 1)
        return fmt::format("{} spans, the longest: {}\n{}", box.count, box.event->name,
                           times);
    std::string text = box.event->name + "\n" + times;
    if (box.event->micro_batch >= 0)
        text += fmt::format("\nmicro-batch {}", box.event->micro_batch);
    if (box.event->bytes > 0) text += "\n" + bytes_text(box.event->bytes);
    if (box.event->at.line > 0) text += "\n" + box.event->at.text();
    return text;
}

/// The longest of its names that fits; of a phase, "forward 3", "F3" or "3".
std::string caption(const SvgBox& box, double pixels) {
    const TraceEvent& event = *box.event;
    if (box.count > 1) return "";
    std::vector<std::string> names{event.name, leading_word(event.name)};
    if (event.kind == "phase" && event.micro_batch >= 0) {
        const std::string number = std::to_string(event.micro_batch);
        names = {leading_word(event.name) + " " + number, look_of(event).letter + number,
                 number};
    }
    for (const std::string& name : names)
        if (kLetterWidth * static_cast<double>(name.size()) + 4 <= pixels) return name;
    return "";
}

}  // namespace

std::string xml_escaped(std::string_view text) {
    std::string escaped;
    const bool utf8 = is_utf8(text);
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                escaped += byte < 0x20 && c != '\n' ? ' '
                           : byte >= 0x80 && !utf8  ? '?'
                                                    : c;
        }
    }
    return escaped;
}

std::string svg_number(double value) {
    std::string text = fmt::format("{:.2f}", value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text == "-0" ? "0" : text;
}

std::vector<SvgBox> svg_boxes(const TimelineRow& row, Picoseconds least) {
    std::vector<SvgBox> boxes;
    const auto short_of = [&](Picoseconds length) { return length < least; };
    for (int depth = 0; depth < 2; ++depth) {
        for (const RowSpan& span : row.spans) {
            if (std::min(span.depth, 1) != depth) continue;
            const TraceEvent& event = *span.event;
            const bool merges = !boxes.empty() && boxes.back().depth == depth &&
                                short_of(event.end - event.start) &&
                                short_of(boxes.back().end - boxes.back().start) &&
                                short_of(event.start - boxes.back().end);
            if (!merges) {
                boxes.push_back({&event, event.start, event.end, depth, 1});
                continue;
            }
            SvgBox& last = boxes.back();
            if (event.end - event.start > last.event->end - last.event->start)
                last.event = &event;
            last.end = std::max(last.end, event.end);
            ++last.count;
        }
    }
    return boxes;
}

std::string svg_box(const SvgBox& box, const SvgScale& scale, double top, double height) {
    constexpr double kThin = 6;
    const bool inner = box.depth > 0;
    const double x = scale.x(box.start);
    const double width = std::max(scale.x(box.end) - x, 0.5);
    const std::string fill =
        inner ? R"(class="i")"
              : fmt::format(R"(fill="{}"{})", look_of(*box.event).colour,
                            width > 4 ? R"( class="w")" : "");
    std::string svg = fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "{}><title>{}</title></rect>\n",
        svg_number(x), svg_number(inner ? top + height - kThin : top), svg_number(width),
        svg_number(inner ? kThin : height), fill, xml_escaped(tooltip(box)));
    const std::string name = inner ? "" : caption(box, width);
    if (!name.empty()) {
        svg += fmt::format(
            "<text x=\"{}\" y=\"{}\" class=\"b\">{}</text>\n", svg_number(x + width / 2),
            svg_number(top + std::min(height, 18.) - 5), xml_escaped(name));
    }
    return svg;
}

}  // namespace lockstep

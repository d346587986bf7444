#include <fmt/format.h>

#include "src/report/svg_parts.hpp"

namespace lockstep {

std::string svg_arrows(const std::vector<TraceFlow>& flows, const SvgScale& scale,
                       FunctionRef<double(int rank, const std::string& queue)> y_of) {
    if (flows.size() > kMostArrows) return "";
    std::string svg;
    for (const TraceFlow& flow : flows) {
        const double from = y_of(flow.source_rank, flow.queue);
        const double to = y_of(flow.destination_rank, flow.queue);
        if (from < 0 || to < 0) continue;
        svg += fmt::format(
            "<path d=\"M{} {}L{} {}\" class=\"a\" marker-end=\"url(#head)\"><title>{} "
            "from device {} to device {}, {} to {}</title></path>\n",
            svg_number(scale.x(flow.start)), svg_number(from),
            svg_number(scale.x(flow.end)), svg_number(to), bytes_text(flow.bytes),
            flow.source_rank, flow.destination_rank, time_text(flow.start),
            time_text(flow.end));
    }
    return svg;
}

}  // namespace lockstep

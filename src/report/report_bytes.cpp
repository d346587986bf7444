#include "src/report/report_bytes.hpp"

#include "src/core/require.hpp"
#include "src/core/wire.hpp"

namespace lockstep {

std::string report_bytes(const RunReport& report) {
    WireWriter out;
    out(report);
    return std::move(out.bytes());
}

RunReport read_report(const std::string& bytes) {
    try {
        WireReader in(bytes);
        RunReport report = in.get<RunReport>();
        in.end();
        return report;
    } catch (const WireError&) {
        throw UsageError("these bytes are no run's report");
    }
}

}  // namespace lockstep

#include "src/report/json_text.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {

using nlohmann::json;

std::string json_quoted(std::string_view text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_number(double value) {
    if (std::isnan(value)) return R"("NaN")";
    if (std::isinf(value)) return value > 0 ? R"("Infinity")" : R"("-Infinity")";
    return json(value).dump();
}

bool is_utf8(std::string_view text) {
    try {
        static_cast<void>(json(text).dump());
        return true;
    } catch (const json::type_error&) {
        return false;
    }
}

}  // namespace lockstep

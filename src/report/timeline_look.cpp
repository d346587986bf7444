#include "src/report/timeline_look.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {

namespace {

// Okabe and Ito, "Color universal design", 2008.
constexpr const char* kOrange = "#E69F00";
constexpr const char* kSkyBlue = "#56B4E9";
constexpr const char* kGreen = "#009E73";
constexpr const char* kYellow = "#F0E442";
constexpr const char* kVermilion = "#D55E00";
constexpr const char* kPurple = "#CC79A7";
constexpr const char* kBlue = "#0072B2";
constexpr const char* kGrey = "#BBBBBB";

constexpr const char* kAnsiBlue = "\x1b[30;46m";
constexpr const char* kAnsiOrange = "\x1b[30;43m";
constexpr const char* kAnsiGreen = "\x1b[30;42m";
constexpr const char* kAnsiWhite = "\x1b[30;47m";
constexpr const char* kAnsiPurple = "\x1b[30;45m";
constexpr const char* kAnsiRed = "\x1b[30;41m";
constexpr const char* kAnsiPlain = "\x1b[7m";

struct NamedLook {
    std::string_view name;
    SpanLook look;
};

constexpr std::array<NamedLook, 5> kPhases{{
    {"forward", {'F', '-', "forward", kAnsiBlue, kSkyBlue}},
    {"backward", {'B', '=', "backward", kAnsiOrange, kOrange}},
    {"backward-input", {'I', '=', "backward, inputs", kAnsiOrange, kOrange}},
    {"backward-weight", {'W', '%', "backward, weights", kAnsiGreen, kGreen}},
    {"update", {'U', '^', "update", kAnsiWhite, kYellow}},
}};

constexpr std::array<NamedLook, 12> kVerbs{{
    {"all_reduce", {'r', '~', "all-reduce", kAnsiPurple, kPurple}},
    {"all_gather", {'g', '~', "all-gather", kAnsiPurple, kPurple}},
    {"reduce_scatter", {'s', '~', "reduce-scatter", kAnsiPurple, kPurple}},
    {"broadcast", {'b', '~', "broadcast", kAnsiPurple, kPurple}},
    {"reduce", {'d', '~', "reduce", kAnsiPurple, kPurple}},
    {"gather", {'h', '~', "gather", kAnsiPurple, kPurple}},
    {"scatter", {'t', '~', "scatter", kAnsiPurple, kPurple}},
    {"all_to_all", {'x', '~', "all-to-all", kAnsiPurple, kPurple}},
    {"barrier", {'|', '~', "barrier", kAnsiPurple, kPurple}},
    {"split", {'/', '~', "split", kAnsiPurple, kPurple}},
    {"send", {'>', '>', "send", kAnsiRed, kVermilion}},
    {"recv", {'<', '<', "recv", kAnsiRed, kVermilion}},
}};

constexpr SpanLook kExchange{'*', '*', "send and receive", kAnsiRed, kVermilion};
constexpr SpanLook kOtherPhase{'P', '-', "another phase", kAnsiWhite, kYellow};
constexpr SpanLook kOperation{'o', 'o', "operation", kAnsiPlain, kGrey};
constexpr SpanLook kCommunication{'c', '~', "communication", kAnsiPurple, kPurple};
constexpr SpanLook kCopy{':', ':', "copy between host and device", kAnsiGreen, kGreen};

template <std::size_t N>
const SpanLook& find(const std::array<NamedLook, N>& looks, std::string_view name,
                     const SpanLook& otherwise) {
    const auto* found = std::ranges::find(looks, name, &NamedLook::name);
    return found == looks.end() ? otherwise : found->look;
}

}  // namespace

std::string leading_word(const std::string& name) {
    return name.substr(0, name.find_first_of(" ("));
}

const SpanLook& look_of(const TraceEvent& event) {
    if (event.kind == "phase")
        return find(kPhases, leading_word(event.name), kOtherPhase);
    if (event.kind == "communication") {
        if (event.name == "send + recv" || event.name == "recv + send") return kExchange;
        const bool several = event.name.find(" + ") != std::string::npos;
        return several ? kCommunication
                       : find(kVerbs, leading_word(event.name), kCommunication);
    }
    return event.kind == "copy" ? kCopy : kOperation;
}

const char* colour_of(MemoryCategory category) {
    constexpr const char* kColours[kMemoryCategories] = {kBlue,    kOrange, kYellow,
                                                         kSkyBlue, kPurple, kGrey};
    return kColours[static_cast<int>(category)];
}

}  // namespace lockstep

#pragma once

#include <string>

#include "src/run/run_report.hpp"

namespace lockstep {

/// How a kind of span is drawn, and what the legend calls it.
struct SpanLook {
    char letter;         ///< opens its box in text
    char fill;           ///< the rest of the box
    const char* words;   ///< "forward", "all-reduce"
    const char* ansi;    ///< colours of text on a terminal
    const char* colour;  ///< of the SVG box, from Okabe and Ito
};

/// By the phase's, verb's or queue's name; what is not known gets a look of its kind.
const SpanLook& look_of(const TraceEvent& event);

/// "forward 3" without its number, "all_reduce(sum, ...)" without its operands.
std::string leading_word(const std::string& name);

/// Of memory, by category.
const char* colour_of(MemoryCategory category);

}  // namespace lockstep

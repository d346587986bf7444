#pragma once

#include <functional>
#include <string>

#include "lessons/page/document.hpp"
#include "lessons/page/language.hpp"

namespace lockstep::lessons {

/// How pages look in a browser. Colours and sizes are the style sheet's, lessons/book/.
struct HtmlLook {
    Language language = Language::english;
    /// Returns where a link leads, "F16.html" for "F16.md"; empty if there is no such
    /// page, and its words then stand alone. Without it links stay as they are.
    std::function<std::string(const std::string& link)> link_to = nullptr;
};

/// Returns blocks as HTML. A question is a form; behind it stands its answer, in an
/// element of the class "outcome", which a script shows when it is time.
std::string html_of(const Document& blocks, const HtmlLook& look);

/// Returns words as HTML, to stand in a paragraph.
std::string html_of(const Words& words, const HtmlLook& look);

/// Returns text for an address behind "#": "The cure" is "the-cure".
std::string anchor_of(const std::string& text);

/// Returns what all pictures of a page need once: how idle time and arrows are drawn.
std::string picture_definitions();

}  // namespace lockstep::lessons

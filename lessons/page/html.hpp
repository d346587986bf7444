#pragma once

#include <functional>
#include <string>

#include "lessons/page/document.hpp"
#include "lessons/page/language.hpp"

namespace lockstep::lessons {

/// How pages look in a browser. Colours and sizes are in the style sheet, lessons/book/.
struct HtmlLook {
    Language language = Language::english;
    /// Returns a link's target: "F16.html" for "F16.md"; empty if there is no such page,
    /// and then only the link's words are shown. If the function is null, links stay
    /// unchanged.
    std::function<std::string(const std::string& link)> link_to = nullptr;
};

/// Returns blocks as HTML. A question is a form. Its answer follows in an element of the
/// class "outcome", which a script shows later.
std::string html_of(const Document& blocks, const HtmlLook& look);

/// Returns words as HTML, for use in a paragraph.
std::string html_of(const Words& words, const HtmlLook& look);

/// Returns a heading's anchor, for an address after "#": "the-cure" for "The cure".
std::string anchor_of(const std::string& text);

/// Returns SVG definitions (the pattern of idle time, arrow heads) for a page's pictures.
std::string picture_definitions();

}  // namespace lockstep::lessons

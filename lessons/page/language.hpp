#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// The language that pages are shown in.
enum class Language { english, chinese };

/// Returns the language that a locale asks for: "zh_CN.UTF-8" is Chinese. All but those
/// that there are pages in are English.
Language language_of_locale(std::string_view locale);

/// A sentence or a word, in which values stand at {}. A translation that needs them in
/// another order says {1} and {0}.
struct Phrase {
    std::string_view english;
    std::string_view chinese;
};

/// Returns all that the program, its pictures and the scripts of the book say around a
/// page. Nothing is translated anywhere else.
std::vector<Phrase> phrases();

/// Returns what the program itself says around a page ("Predict:") in that language.
/// Throws std::logic_error if nobody has translated it.
std::string said(Language language, std::string_view english);

/// Returns sentences behind one another, without those that are empty; Chinese ones have
/// no space between them.
std::string joined(Language language, const std::vector<std::string>& sentences);

/// Returns what a picture or a table says, "idle" or "chunk 0", in Chinese, line by line;
/// as it is if nobody has translated it.
std::string in_chinese(std::string_view english);

}  // namespace lockstep::lessons

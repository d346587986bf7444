#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// The language in which pages are shown.
enum class Language { english, chinese };

/// Returns the language of a locale: "zh_CN.UTF-8" is Chinese. Returns English for a
/// language that has no pages.
Language language_of_locale(std::string_view locale);

/// A sentence or a word, in which values replace {}. If the values have another order in
/// the translation, it has {1} and {0}.
struct Phrase {
    std::string_view english;
    std::string_view chinese;
};

/// Returns all texts around a page: those of the program, its pictures and the book's
/// scripts. All translations are here.
std::vector<Phrase> phrases();

/// Returns a text of the program around a page ("Predict:") in that language. Throws
/// std::logic_error if there is no translation.
std::string said(Language language, std::string_view english);

/// Joins sentences, without the empty ones; Chinese sentences have no space between them.
std::string joined(Language language, const std::vector<std::string>& sentences);

/// Returns a text of a picture or table, "idle" or "chunk 0", in Chinese, line by line;
/// unchanged if there is no translation.
std::string in_chinese(std::string_view english);

}  // namespace lockstep::lessons

#pragma once

#include <string>
#include <string_view>

namespace lockstep::lessons {

/// The language that pages are shown in.
enum class Language { english, chinese };

/// Returns the language that a locale asks for: "zh_CN.UTF-8" is Chinese. All but those
/// that there are pages in are English.
Language language_of_locale(std::string_view locale);

/// Returns what the program itself says around a page ("Predict:") in that language.
/// Throws std::logic_error if nobody has translated it.
std::string said(Language language, std::string_view english);

/// Returns a word of a picture, "idle" or "chunk 0", in Chinese; as it is if nobody has
/// translated it.
std::string in_chinese(std::string_view english);

}  // namespace lockstep::lessons

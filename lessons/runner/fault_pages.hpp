#pragma once

#include <string>

#include "lessons/page/document.hpp"
#include "lessons/page/language.hpp"

namespace lockstep::lessons {

/// Returns the page on one kind of mistake ("F16") or on all kinds ("README"); empty if
/// there is none. Parts without a translation are in English.
Document fault_page(const std::string& id, Language language);

}  // namespace lockstep::lessons

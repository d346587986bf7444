#pragma once

#include <string>
#include <vector>

/// The words for "cause" in answers.json. The README says what each word means.
inline const std::vector<std::string> kCauses{
    "other_path",  "wrong_peer",  "wrong_order", "wrong_schedule",
    "not_arrived", "overwritten", "wrong_mean",  "summed_again",
    "not_summed",  "old_values",  "too_often",   "kept_too_long"};

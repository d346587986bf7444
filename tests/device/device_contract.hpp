#pragma once

// The contract of every backend's Device. It compares operations with their definitions,
// which are written out in f64. A backend's test program defines, in one of its files:
//
//     namespace lockstep::test {
//     const char* const kTags = "[sim][device]";
//     std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor) { … }
//     const bool kProductsOfBf16InOrder = true;
//     }
//
// and gets the tests of the headers that it includes. Sizes are odd on purpose. They are
// below, at and beyond the width of vectors, of a product's blocks and of a warp.

#include "tests/device/activation_contract.hpp"
#include "tests/device/attention_contract.hpp"
#include "tests/device/batch_norm_contract.hpp"
#include "tests/device/bf16_contract.hpp"
#include "tests/device/causal_softmax_contract.hpp"
#include "tests/device/lookup_contract.hpp"
#include "tests/device/loss_contract.hpp"
#include "tests/device/matrix_contract.hpp"
#include "tests/device/memory_contract.hpp"
#include "tests/device/move_contract.hpp"
#include "tests/device/norm_contract.hpp"
#include "tests/device/online_attention_backward_contract.hpp"
#include "tests/device/online_attention_contract.hpp"
#include "tests/device/optimizer_contract.hpp"
#include "tests/device/paged_attention_contract.hpp"
#include "tests/device/random_contract.hpp"
#include "tests/device/rotary_contract.hpp"
#include "tests/device/row_by_row_contract.hpp"
#include "tests/device/sort_ids_contract.hpp"
#include "tests/device/top_k_contract.hpp"
#include "tests/device/vocabulary_contract.hpp"

/* digest_test.c: published vectors of CRC32C, MD5, SHA-256, HMAC, hex and base64. */
#include "codec/digest.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"

Test(crc32c, the_vectors_of_rfc_3720) {
  uint8_t bytes[32];
  cr_assert_eq(crc32c(0, "123456789", 9), 0xe3069283u);
  memset(bytes, 0, sizeof bytes);
  cr_assert_eq(crc32c(0, bytes, 32), 0x8a9136aau);
  memset(bytes, 0xff, sizeof bytes);
  cr_assert_eq(crc32c(0, bytes, 32), 0x62a8ab43u);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
  cr_assert_eq(crc32c(0, bytes, 32), 0x46dd794eu);
  cr_assert_eq(crc32c(0, NULL, 0), 0u);
  for (size_t cut = 0; cut <= 9; cut++) {
    cr_assert_eq(crc32c(crc32c(0, "123456789", cut), &"123456789"[cut], 9 - cut), 0xe3069283u);
  }
}

Test(crc32c, a_unit_in_another_place_has_another_crc) {
  struct id128 id = {{7}}, other = {{8}};
  uint32_t crc = unit_crc(&id, 2, 3, "data", 4);
  cr_assert_neq(crc, unit_crc(&other, 2, 3, "data", 4));
  cr_assert_neq(crc, unit_crc(&id, 3, 3, "data", 4));
  cr_assert_neq(crc, unit_crc(&id, 2, 4, "data", 4));
  cr_assert_neq(crc, unit_crc(&id, 2, 3, "datb", 4));
  cr_assert_neq(crc, unit_crc(&id, 2, 3, "data", 3));
  cr_assert_neq(unit_crc(&id, 2, 3, NULL, 0), unit_crc(&id, 2, 4, NULL, 0), "empty units too");
  cr_assert_eq(crc, unit_crc(&id, 2, 3, "data", 4));
}

static void expect_hex(const uint8_t *bytes, size_t len, const char *hex) {
  char out[2 * 64 + 1];
  hex_encode(bytes, len, out);
  cr_assert_str_eq(out, hex);
}

Test(digest, md5_and_sha256_of_abc) {
  uint8_t out[SHA256_LEN];
  struct digest d;
  cr_assert_eq(digest_begin(&d, DIGEST_MD5), 0);
  digest_update(&d, "a", 1);
  digest_update(&d, NULL, 0);
  digest_update(&d, "bc", 2);
  digest_end(&d, out);
  expect_hex(out, MD5_LEN, "900150983cd24fb0d6963f7d28e17f72");
  digest_abort(&d); /* after the end: nothing to do */
  cr_assert_eq(digest_begin(&d, DIGEST_SHA256), 0);
  digest_update(&d, "abc", 3);
  digest_end(&d, out);
  expect_hex(out, SHA256_LEN, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha256(NULL, 0, out);
  expect_hex(out, SHA256_LEN, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  cr_assert_eq(digest_begin(&d, DIGEST_MD5), 0);
  digest_end(&d, out);
  expect_hex(out, MD5_LEN, "d41d8cd98f00b204e9800998ecf8427e");
  cr_assert_eq(digest_begin(&d, DIGEST_MD5), 0);
  digest_abort(&d); /* the sanitizer watches */
  struct digest zero = {0};
  digest_abort(&zero);
}

Test(digest, hmac_of_rfc_4231) {
  uint8_t out[SHA256_LEN];
  hmac_sha256(SLICE_LIT("Jefe"), SLICE_LIT("what do ya want for nothing?"), out);
  expect_hex(out, SHA256_LEN, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  hmac_sha256((struct slice){NULL, 0}, (struct slice){NULL, 0}, out);
  expect_hex(out, SHA256_LEN, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  cr_assert(digest_equal("abc", "abc", 3));
  cr_assert_not(digest_equal("abc", "abd", 3));
}

Test(digest, hex_is_whole_or_refused) {
  uint8_t out[4] = {9, 9, 9, 9};
  cr_assert_eq(hex_decode(SLICE_LIT("00fFA1b2"), out, 4), 0);
  cr_assert_eq(memcmp(out, "\x00\xff\xa1\xb2", 4), 0);
  static const char *const wrong[] = {"",         "00ffa1b",  "00ffa1b2c", "00ffa1b2c3",
                                      "00ffa1g2", " 0ffa1b2", "0x00ffa1"};
  memset(out, 9, 4);
  for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
    cr_assert_eq(hex_decode(slice_str(wrong[i]), out, 4), ERR_INVALID, "%s", wrong[i]);
    cr_assert_eq(out[0], 9, "untouched");
  }
}

Test(digest, base64_of_rfc_4648) {
  static const char *const pairs[][2] = {{"", ""},
                                         {"f", "Zg=="},
                                         {"fo", "Zm8="},
                                         {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="},
                                         {"fooba", "Zm9vYmE="},
                                         {"foobar", "Zm9vYmFy"}};
  for (unsigned i = 0; i < ARRAY_LEN(pairs); i++) {
    char text[16];
    uint8_t back[16];
    base64_encode(pairs[i][0], strlen(pairs[i][0]), text);
    cr_assert_str_eq(text, pairs[i][1]);
    int len = base64_decode(slice_str(text), back, sizeof back);
    cr_assert_eq(len, (int)strlen(pairs[i][0]));
    cr_assert_eq(memcmp(back, pairs[i][0], (size_t)len), 0);
    if (len > 0)
      cr_assert_eq(base64_decode(slice_str(text), back, (size_t)len - 1), ERR_INVALID, "no room");
  }
  static const char *const wrong[] = {"Z",    "Zg",   "Zg=",    "Zg===", "====",     "Zh==", "Zm9=",
                                      "Z=g=", "Zm 9", "Zm9v\n", "-_-_",  "Zg==Zg==", "=Zg="};
  uint8_t out[16];
  for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
    cr_assert_eq(base64_decode(slice_str(wrong[i]), out, sizeof out), ERR_INVALID, "%s", wrong[i]);
  }
}

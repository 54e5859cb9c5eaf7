/*
 * The hot loops over segments: the walk over batches with their checksums, the records of batches
 * as columns, and the text of kafka-dump-log.
 *
 * Everything here reads only what is plain: whole batches of magic 2 whose records fill them
 * exactly. At anything else a function stops and says where; the decoders in Python, which can do
 * all of it, then decode that part and say what is wrong with it. So nothing here explains damage,
 * and no damage is explained twice. Every position is compared with the end of the bytes before it
 * is read, and nothing is allocated.
 *
 * The layouts are those of kdump/formats/record_batch.py (Kafka's DefaultRecordBatch and
 * DefaultRecord), the lines those of kdump/dump (Kafka's DumpLogSegments).
 */
#include <stdint.h>
#include <string.h>

typedef uint8_t byte;

/* To be raised with every change of what library.py passes: an old library is then not used. */
const int kdump_interface = 2;

enum { /* of a batch's header */
    LENGTH_AT = 8, LEADER_EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21,
    LAST_OFFSET_DELTA_AT = 23, BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_ID_AT = 43,
    PRODUCER_EPOCH_AT = 51, BASE_SEQUENCE_AT = 53, RECORDS_COUNT_AT = 57, HEADER_BYTES = 61,
    OVERHEAD_BYTES = 12
};
enum { /* of a batch's attributes */
    CODEC_MASK = 7, LOG_APPEND_TIME = 8, TRANSACTIONAL = 16, CONTROL = 32, DELETE_HORIZON = 64
};
enum { ZSTD = 4 };

static uint64_t big_endian(const byte *at, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value = value << 8 | at[i];
    return value;
}
static int64_t int64_at(const byte *at) { return (int64_t)big_endian(at, 8); }
static int32_t int32_at(const byte *at) { return (int32_t)big_endian(at, 4); }
static int16_t int16_at(const byte *at) { return (int16_t)big_endian(at, 2); }

/* ---- CRC-32C ---- */

/* Eight bytes at a time, by tables; with the processor's instruction three runs at once, because
 * each has to wait for its own result only. RUNS are their sizes; appending that many zeroes to
 * what a checksum covers is a linear function of the checksum, which `skip` has by its bytes. */
static uint32_t table[8][256];
static const int RUNS[2] = {2048, 256};
static uint32_t skip[2][4][256];

static uint32_t crc_by_tables(uint32_t crc, const byte *data, int64_t size) {
    for (; size >= 8; data += 8, size -= 8)
        crc = table[7][(crc ^ data[0]) & 255] ^ table[6][(crc >> 8 ^ data[1]) & 255]
            ^ table[5][(crc >> 16 ^ data[2]) & 255] ^ table[4][(crc >> 24 ^ data[3]) & 255]
            ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    for (; size > 0; data++, size--) crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return crc;
}

#if defined(__x86_64__)
#define WITH_CRC __attribute__((target("sse4.2")))
#define CRC8(crc, value) ((uint32_t)__builtin_ia32_crc32di((crc), (value)))
#define CRC1(crc, value) __builtin_ia32_crc32qi((crc), (value))
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define WITH_CRC
#define CRC8(crc, value) __crc32cd((crc), (value))
#define CRC1(crc, value) __crc32cb((crc), (value))
#endif

#ifdef WITH_CRC
static uint64_t eight(const byte *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static uint32_t skipped(int run, uint32_t crc) {
    return skip[run][0][crc & 255] ^ skip[run][1][crc >> 8 & 255]
         ^ skip[run][2][crc >> 16 & 255] ^ skip[run][3][crc >> 24];
}

WITH_CRC static uint32_t crc_by_instruction(uint32_t crc, const byte *data, int64_t size) {
    for (int run = 0; run < 2; run++) {
        int bytes = RUNS[run];
        for (; size >= 3 * bytes; data += 3 * bytes, size -= 3 * bytes) {
            uint32_t second = 0, third = 0;
            for (int i = 0; i < bytes; i += 8) {
                crc = CRC8(crc, eight(data + i));
                second = CRC8(second, eight(data + bytes + i));
                third = CRC8(third, eight(data + 2 * bytes + i));
            }
            crc = skipped(run, skipped(run, crc) ^ second) ^ third;
        }
    }
    for (; size >= 8; data += 8, size -= 8) crc = CRC8(crc, eight(data));
    for (; size > 0; data++, size--) crc = CRC1(crc, *data);
    return crc;
}
#endif

static uint32_t (*crc_of)(uint32_t, const byte *, int64_t) = crc_by_tables;

__attribute__((constructor)) static void prepare_crc(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
#ifdef WITH_CRC
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("sse4.2")) return;
#endif
    static const byte zeroes[2048];
    for (int run = 1; run >= 0; run--) /* the longer run is skipped over by the shorter one */
        for (int part = 0; part < 4; part++)
            for (int bit = 0; bit < 8; bit++) {
                uint32_t one = crc_by_instruction(1u << (8 * part + bit), zeroes, RUNS[run]);
                for (int i = 0; i < 1 << bit; i++)
                    skip[run][part][1 << bit | i] = skip[run][part][i] ^ one;
            }
    crc_of = crc_by_instruction;
#endif
}

static uint32_t crc32c(const byte *data, int64_t size) { return ~crc_of(~0u, data, size); }

/* ---- Batches ---- */

/* The size of the batch at `at` if it is whole, and large enough for its header; otherwise 0. */
static int64_t whole_batch(const byte *data, int64_t size, int64_t at) {
    if (size - at < HEADER_BYTES) return 0;
    int64_t bytes = (int64_t)int32_at(data + at + LENGTH_AT) + OVERHEAD_BYTES;
    return bytes >= HEADER_BYTES && bytes <= size - at ? bytes : 0;
}

static int has_its_checksum(const byte *batch, int64_t bytes) {
    return crc32c(batch + ATTRIBUTES_AT, bytes - ATTRIBUTES_AT)
        == (uint32_t)int32_at(batch + CRC_AT);
}

/* Writes where whole batches begin, and whether the checksum of magic 2 holds (1 without
 * `checksums`). Returns how many there are before the first that is not whole, at most `most`;
 * `*end` is where they end. */
int64_t kdump_walk(const byte *data, int64_t size, int checksums, int64_t most, int64_t *starts,
                   byte *is_valid, int64_t *end) {
    int64_t at = 0, count = 0, bytes;
    while (count < most && (bytes = whole_batch(data, size, at))) {
        is_valid[count] = checksums ? has_its_checksum(data + at, bytes) : 1;
        starts[count++] = at;
        at += bytes;
    }
    *end = at;
    return count;
}

/* ---- Records ---- */

/* A failed read sets `at` past `end` and gives 0: callers compare once after several reads. */
typedef struct { const byte *at, *end; } Cursor;

static uint64_t variable(Cursor *cursor, int most_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < most_bytes && cursor->at < cursor->end; i++) {
        byte next = *cursor->at++;
        value |= (uint64_t)(next & 127) << (7 * i);
        if (next < 128) return value;
    }
    cursor->at = cursor->end + 1;
    return 0;
}
static int64_t varint(Cursor *cursor) {
    uint32_t value = (uint32_t)variable(cursor, 5);
    return (int32_t)(value >> 1 ^ -(value & 1));
}
static int64_t varlong(Cursor *cursor) {
    uint64_t value = variable(cursor, 10);
    return (int64_t)(value >> 1 ^ -(value & 1));
}
static const byte *take(Cursor *cursor, int64_t size) {
    const byte *start = cursor->at;
    if (size > cursor->end - start) cursor->at = cursor->end + 1;
    else if (size > 0) cursor->at += size;
    return start;
}

typedef struct {
    int64_t attributes, timestamp_delta, offset_delta, key_size, value_size, headers_count;
    const byte *key, *value, *headers;
} Record;

/* Reads a record; 0 if it does not fill the length that it claims exactly. */
static int read_record(Cursor *cursor, Record *record) {
    int64_t length = varint(cursor);
    if (length < 1 || length > cursor->end - cursor->at) return 0;
    Cursor body = {cursor->at, cursor->at + length};
    record->attributes = (int8_t)*body.at++;
    record->timestamp_delta = varlong(&body);
    record->offset_delta = varint(&body);
    record->key_size = varint(&body);
    record->key = take(&body, record->key_size);
    record->value_size = varint(&body);
    record->value = take(&body, record->value_size);
    record->headers_count = varint(&body);
    record->headers = body.at;
    if (record->headers_count < 0) return 0;
    for (int64_t i = 0; i < record->headers_count; i++) {
        int64_t key_size = varint(&body);
        take(&body, key_size);
        take(&body, varint(&body));
        if (key_size < 0 || body.at > body.end) return 0;
    }
    cursor->at = body.at;
    return body.at == body.end;
}

enum Column {
    BATCH, ATTRIBUTES, TIMESTAMP_DELTA, OFFSET_DELTA, KEY_START, KEY_SIZE, VALUE_START, VALUE_SIZE,
    HEADERS_START, HEADERS_COUNT, END
};

/* Writes the records of `sections` parts of `data` to columns of `most` rows each; positions count
 * from `data`, sizes of nulls are -1. Returns 0 at the first section that is not plain. */
int kdump_records(const byte *data, int64_t size, int64_t sections, const int64_t *start,
                  const int64_t *end, const int64_t *count, const byte *must_fill, int64_t most,
                  int64_t *columns) {
    int64_t row = 0;
    for (int64_t section = 0; section < sections; section++) {
        if (start[section] < 0 || start[section] > end[section] || end[section] > size) return 0;
        if (count[section] < 0 || count[section] > most - row) return 0;
        Cursor cursor = {data + start[section], data + end[section]};
        for (int64_t i = 0; i < count[section]; i++, row++) {
            Record record;
            if (!read_record(&cursor, &record)) return 0;
            columns[BATCH * most + row] = section;
            columns[ATTRIBUTES * most + row] = record.attributes;
            columns[TIMESTAMP_DELTA * most + row] = record.timestamp_delta;
            columns[OFFSET_DELTA * most + row] = record.offset_delta;
            columns[KEY_START * most + row] = record.key - data;
            columns[KEY_SIZE * most + row] = record.key_size < 0 ? -1 : record.key_size;
            columns[VALUE_START * most + row] = record.value - data;
            columns[VALUE_SIZE * most + row] = record.value_size < 0 ? -1 : record.value_size;
            columns[HEADERS_START * most + row] = record.headers - data;
            columns[HEADERS_COUNT * most + row] = record.headers_count;
            columns[END * most + row] = cursor.at - data;
        }
        if (count[section] && must_fill[section] && cursor.at != cursor.end) return 0;
    }
    return row == most;
}

/* Writes the largest timestamp of the records of each batch of `data`, -1 for a batch without any.
 * Returns how many batches there are; -1 if they do not fill `data`, if one is not plain, or if
 * there are more than `most`. */
int64_t kdump_largest_timestamps(const byte *data, int64_t size, int64_t most, int64_t *largest) {
    int64_t count = 0;
    for (int64_t at = 0, bytes; at < size; at += bytes) {
        if (count == most || !(bytes = whole_batch(data, size, at))) return -1;
        const byte *batch = data + at;
        int32_t attributes = int16_at(batch + ATTRIBUTES_AT);
        int32_t records_count = int32_at(batch + RECORDS_COUNT_AT);
        if (batch[MAGIC_AT] != 2 || attributes & CODEC_MASK || records_count < 0) return -1;
        if (!has_its_checksum(batch, bytes)) return -1;
        Cursor cursor = {batch + HEADER_BYTES, batch + bytes};
        int64_t base_timestamp = int64_at(batch + BASE_TIMESTAMP_AT), greatest = -1;
        for (int32_t i = 0; i < records_count; i++) {
            Record record;
            if (!read_record(&cursor, &record)) return -1;
            int64_t timestamp = attributes & LOG_APPEND_TIME
                ? int64_at(batch + MAX_TIMESTAMP_AT)
                : (int64_t)((uint64_t)base_timestamp + (uint64_t)record.timestamp_delta);
            if (timestamp > greatest) greatest = timestamp;
        }
        if (records_count && cursor.at != cursor.end) return -1;
        largest[count++] = greatest;
    }
    return count;
}

/* ---- Text ---- */

/* Text is written without checks: before each batch and each record its largest text is compared
 * with the room that is left. */
typedef struct { byte *at, *end; } Text;

enum {
    BATCH_TEXT_BYTES = 640, /* at most, for a line of a batch: words of 340 and 15 numbers */
    RECORD_TEXT_BYTES = 320, /* likewise for a record, without what it contains */
    GROWTH = 3               /* of bytes that are not UTF-8: each becomes U+FFFD */
};

static void put(Text *text, const char *words) {
    size_t size = strlen(words);
    memcpy(text->at, words, size);
    text->at += size;
}

static void put_int(Text *text, int64_t value) {
    byte digits[20], *first = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--first = (byte)('0' + left % 10); while (left /= 10);
    if (value < 0) *text->at++ = '-';
    size_t size = (size_t)(digits + sizeof digits - first);
    memcpy(text->at, first, size);
    text->at += size;
}

static void put_field(Text *text, const char *label, int64_t value) {
    put(text, label);
    put_int(text, value);
}

/* The size of the UTF-8 sequence that begins with C2 to F4; negative if it is malformed. An encoded
 * surrogate is one malformed sequence to Java, of the three or two bytes that are there. */
static int sequence(const byte *from, const byte *end) {
    byte first = *from, low = 0x80, high = 0xBF;
    int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    for (int i = 1; i < size; i++, low = 0x80, high = 0xBF)
        if (i >= end - from || from[i] < low || from[i] > high) return -i;
    return first == 0xED && from[1] >= 0xA0 ? -size : size;
}

/* Bytes as new String(bytes, UTF_8) reads them, in UTF-8. */
static void put_utf8(Text *text, const byte *from, int64_t size) {
    const byte *end = from + size;
    byte *to = text->at;
    while (from < end) {
        uint64_t next;
        if (end - from >= 8 && (memcpy(&next, from, 8), !(next & 0x8080808080808080u))) {
            memcpy(to, from, 8);
            to += 8, from += 8;
        } else if (*from < 0x80) {
            *to++ = *from++;
        } else {
            int bytes = *from < 0xC2 || *from > 0xF4 ? -1 : sequence(from, end);
            if (bytes > 0) {
                memcpy(to, from, (size_t)bytes);
                to += bytes, from += bytes;
            } else {
                memcpy(to, "\xEF\xBF\xBD", 3);
                to += 3, from -= bytes;
            }
        }
    }
    text->at = to;
}

/* ProducerIdAndEpoch's sequences begin again after 2^31 - 1 (DefaultRecordBatch). */
static int32_t increment_sequence(int64_t sequence, int64_t increment) {
    int32_t room = (int32_t)(INT32_MAX - increment);
    return (int32_t)(sequence > room ? increment - (INT32_MAX - sequence) - 1
                                     : sequence + increment);
}

/* Integers of 64 bits wrap as Java's do. */
static int64_t wrapping_sum(int64_t left, int64_t right) {
    return (int64_t)((uint64_t)left + (uint64_t)right);
}

typedef struct {
    const byte *at;
    int64_t bytes, base_offset, base_timestamp, max_timestamp;
    int32_t attributes, last_offset_delta, base_sequence, records_count;
} Header;

static Header read_header(const byte *at, int64_t bytes) {
    return (Header){
        .at = at, .bytes = bytes, .base_offset = int64_at(at),
        .base_timestamp = int64_at(at + BASE_TIMESTAMP_AT),
        .max_timestamp = int64_at(at + MAX_TIMESTAMP_AT),
        .attributes = int16_at(at + ATTRIBUTES_AT),
        .last_offset_delta = int32_at(at + LAST_OFFSET_DELTA_AT),
        .base_sequence = int32_at(at + BASE_SEQUENCE_AT),
        .records_count = int32_at(at + RECORDS_COUNT_AT),
    };
}

static const char *timestamp_type(const Header *header) {
    return header->attributes & LOG_APPEND_TIME ? " LogAppendTime: " : " CreateTime: ";
}

static void put_batch(Text *text, const Header *header, int64_t position) {
    static const char *const CODECS[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    int32_t base_sequence = header->base_sequence, delta = header->last_offset_delta;
    put_field(text, "baseOffset: ", header->base_offset);
    put_field(text, " lastOffset: ", wrapping_sum(header->base_offset, delta));
    put_field(text, " count: ", header->records_count);
    put_field(text, " baseSequence: ", base_sequence);
    put_field(text, " lastSequence: ",
              base_sequence == -1 ? -1 : increment_sequence(base_sequence, delta));
    put_field(text, " producerId: ", int64_at(header->at + PRODUCER_ID_AT));
    put_field(text, " producerEpoch: ", int16_at(header->at + PRODUCER_EPOCH_AT));
    put_field(text, " partitionLeaderEpoch: ", int32_at(header->at + LEADER_EPOCH_AT));
    put(text, header->attributes & TRANSACTIONAL ? " isTransactional: true"
                                                 : " isTransactional: false");
    put(text, header->attributes & CONTROL ? " isControl: true" : " isControl: false");
    if (header->attributes & DELETE_HORIZON) {
        put_field(text, " deleteHorizonMs: OptionalLong[", header->base_timestamp);
        put(text, "]");
    } else put(text, " deleteHorizonMs: OptionalLong.empty");
    put_field(text, " position: ", position);
    put_field(text, timestamp_type(header), header->max_timestamp);
    put_field(text, " size: ", header->bytes);
    put(text, " magic: 2 compresscodec: ");
    put(text, CODECS[header->attributes & CODEC_MASK]);
    put_field(text, " crc: ", (uint32_t)int32_at(header->at + CRC_AT));
    put(text, " isvalid: true\n");
}

static void put_header_keys(Text *text, const Record *record, const byte *end) {
    Cursor cursor = {record->headers, end};
    put(text, "[");
    for (int64_t i = 0; i < record->headers_count; i++) {
        if (i) put(text, ",");
        int64_t size = varint(&cursor);
        put_utf8(text, take(&cursor, size), size);
        take(&cursor, varint(&cursor));
    }
    put(text, "]");
}

/* A transaction marker as every broker writes it; 0 for any other control record. */
static int put_marker(Text *text, const Record *record) {
    if (record->key_size != 4 || record->value_size != 6) return 0;
    int type = int16_at(record->key + 2);
    if (int16_at(record->key) || int16_at(record->value) || type < 0 || type > 1) return 0;
    put(text, type ? " endTxnMarker: COMMIT" : " endTxnMarker: ABORT");
    put_field(text, " coordinatorEpoch: ", int32_at(record->value + 2));
    return 1;
}

enum { WITH_RECORDS = 1, WITH_METADATA = 2, WITH_CONTENTS = 4 };
enum Stop { AT_END, AT_FULL_TEXT, AT_COMPRESSED, AT_OTHER };

typedef struct {
    const byte *data;       /* a window of a segment, from the start of a batch on */
    int64_t size;
    int64_t position;       /* of the window in its file */
    int64_t at;             /* where in the window the next batch begins */
    const byte *records;    /* of the next batch, decompressed; or null */
    int64_t records_size;
    byte *text;
    int64_t capacity, written;
    int64_t *gaps;          /* pairs: an offset, and the one that follows it */
    int64_t most_gaps, gaps_count;
    int64_t previous_offset;
    const byte *line_start; /* of each record */
    int64_t line_start_size;
    int64_t options;
} Dump;

/* Writes the line of a record; 0 if it is one for the decoders in Python. */
static int put_record(Text *text, const Dump *dump, const Header *header, const Record *record,
                      const byte *end, int64_t offset) {
    int is_control = header->attributes & CONTROL, is_first = !(dump->options & WITH_METADATA);
    memcpy(text->at, dump->line_start, (size_t)dump->line_start_size);
    text->at += dump->line_start_size;
    if (dump->options & WITH_METADATA) {
        int64_t sequence = header->base_sequence < 0 ? -1
            : increment_sequence(header->base_sequence, record->offset_delta);
        put_field(text, "| offset: ", offset);
        put_field(text, timestamp_type(header), header->attributes & LOG_APPEND_TIME
            ? header->max_timestamp : wrapping_sum(header->base_timestamp, record->timestamp_delta));
        put_field(text, " keySize: ", record->key_size < 0 ? -1 : record->key_size);
        put_field(text, " valueSize: ", record->value_size < 0 ? -1 : record->value_size);
        put_field(text, " sequence: ", sequence);
        put(text, " headerKeys: ");
        put_header_keys(text, record, end);
        if (is_control && !put_marker(text, record)) return 0;
    }
    if (dump->options & WITH_CONTENTS && !is_control) {
        if (record->key_size >= 0) {
            put(text, is_first ? "| key: " : " key: ");
            put_utf8(text, record->key, record->key_size);
            is_first = 0;
        }
        if (record->value_size >= 0) {
            put(text, is_first ? "| payload: " : " payload: ");
            put_utf8(text, record->value, record->value_size);
        }
    }
    put(text, "\n");
    return 1;
}

static enum Stop put_records(Text *text, Dump *dump, const Header *header) {
    const byte *records = dump->records ? dump->records : header->at + HEADER_BYTES;
    Cursor cursor = {records, dump->records ? records + dump->records_size
                                            : header->at + header->bytes};
    for (int32_t i = 0; i < header->records_count; i++) {
        const byte *start = cursor.at;
        Record record;
        if (!read_record(&cursor, &record)) return AT_OTHER;
        int64_t most = RECORD_TEXT_BYTES + dump->line_start_size + GROWTH * (cursor.at - start);
        if (most > text->end - text->at) return AT_FULL_TEXT;
        int64_t offset = wrapping_sum(header->base_offset, record.offset_delta);
        if (offset != wrapping_sum(dump->previous_offset, 1)) {
            if (dump->gaps_count == dump->most_gaps) return AT_FULL_TEXT;
            dump->gaps[2 * dump->gaps_count] = dump->previous_offset;
            dump->gaps[2 * dump->gaps_count++ + 1] = offset;
        }
        dump->previous_offset = offset;
        if (!put_record(text, dump, header, &record, cursor.at, offset)) return AT_OTHER;
    }
    return header->records_count && cursor.at != cursor.end ? AT_OTHER : AT_END;
}

static enum Stop put_whole_batch(Text *text, Dump *dump, int64_t bytes) {
    const byte *at = dump->data + dump->at;
    Header header = read_header(at, bytes);
    int codec = header.attributes & CODEC_MASK;
    if (at[MAGIC_AT] != 2 || codec > ZSTD || header.records_count < 0) return AT_OTHER;
    int has_records = dump->options & WITH_RECORDS && header.records_count;
    if (has_records && codec && !dump->records) return AT_COMPRESSED;
    if (!has_its_checksum(at, bytes)) return AT_OTHER;
    if (text->end - text->at < BATCH_TEXT_BYTES) return AT_FULL_TEXT;
    put_batch(text, &header, dump->position + dump->at);
    return has_records ? put_records(text, dump, &header) : AT_END;
}

/* Writes the text of whole batches from `at` on, and moves `at` past them. Returns why it stops:
 * fewer bytes than a batch are left, or the next batch needs more room (it also comes here if no
 * room would be enough), is compressed, or is not plain. */
int kdump_text(Dump *dump) {
    Text text = {dump->text, dump->text + dump->capacity};
    enum Stop stop = AT_END;
    dump->written = dump->gaps_count = 0;
    for (int64_t bytes; (bytes = whole_batch(dump->data, dump->size, dump->at));) {
        int64_t gaps_count = dump->gaps_count, previous_offset = dump->previous_offset;
        stop = put_whole_batch(&text, dump, bytes);
        if (stop != AT_END) {
            dump->gaps_count = gaps_count;
            dump->previous_offset = previous_offset;
            break;
        }
        dump->at += bytes;
        dump->records = 0;
        dump->written = text.at - dump->text;
    }
    return stop;
}

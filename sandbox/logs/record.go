package logs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// record is the amount of output in the log. The file keeps the last two records, written in turn, each with a
// checksum. If a power failure damages one, the other is still valid.
type record struct {
	seq    uint64
	logged [streams]int64 // offset of the first byte that is not in the log
	file   fileID         // of the log
	length int64          // of the log
}

type fileID struct{ dev, ino uint64 }

const (
	recordSize  = 64
	recordMagic = 0x626b6c31 // "bkl1"
)

func (r record) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, recordSize), recordMagic)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, v := range []uint64{r.seq, uint64(r.logged[Stdout]), uint64(r.logged[Stderr]), r.file.dev, r.file.ino, uint64(r.length)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = b[:recordSize]
	binary.LittleEndian.PutUint32(b[4:], crc32.ChecksumIEEE(b[8:]))
	return b
}

// decode decodes recordSize bytes.
func decode(b []byte) (r record, ok bool) {
	if binary.LittleEndian.Uint32(b) != recordMagic || binary.LittleEndian.Uint32(b[4:]) != crc32.ChecksumIEEE(b[8:]) {
		return record{}, false
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	r = record{
		seq:    at(0),
		logged: [streams]int64{int64(at(1)), int64(at(2))},
		file:   fileID{at(3), at(4)},
		length: int64(at(5)),
	}
	return r, r.logged[Stdout] >= 0 && r.logged[Stderr] >= 0 && r.length >= 0
}

// openRecord opens the file at path and returns the newer of its records. It creates a missing file, with an empty
// record.
func openRecord(path string) (*os.File, record, error) {
	if _, err := os.Stat(path); os.IsNotExist(err) {
		first := record{}
		if err := atomicfile.Write(path, append(first.encode(), first.encode()...), 0o600, atomicfile.Volatile); err != nil {
			return nil, record{}, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, record{}, fmt.Errorf("open the log's record: %w", err)
	}
	var b [2 * recordSize]byte
	n, _ := f.ReadAt(b[:], 0)
	var newest record
	found := false
	for i := range 2 {
		if lo, hi := i*recordSize, (i+1)*recordSize; hi <= n {
			if r, ok := decode(b[lo:hi]); ok && (!found || r.seq > newest.seq) {
				newest, found = r, true
			}
		}
	}
	if !found {
		f.Close()
		return nil, record{}, fmt.Errorf("read the log's record %s: %w", path, atomicfile.ErrCorrupt)
	}
	return f, newest, nil
}

// commit writes r as the next record and makes it the current one.
func (w *Writer) commit(r record) error {
	r.seq = w.rec.seq + 1
	if err := writeAt(w.records, r.encode(), int64(r.seq%2)*recordSize); err != nil {
		return fmt.Errorf("record the log's length: %w", err)
	}
	w.rec = r
	return nil
}

func identify(f *os.File) (fileID, int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, 0, fmt.Errorf("stat the log: %w", err)
	}
	return fileID{st.Dev, st.Ino}, st.Size, nil
}

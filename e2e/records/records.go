// Package records has the numbered records of a program that is killed while it writes. Torn, lost and misplaced
// records can be detected.
package records

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// longest is the length of the longest record in bytes. Some records are longer than a page.
const longest = 9000

// Record returns the record with number n, from 1. It ends with a newline.
func Record(n int) []byte {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	size := 80 + int(sum[0])*int(sum[1])%(longest-80)
	r := fmt.Appendf(make([]byte, 0, size), "%08d ", n)
	for len(r) < size-1 {
		r = append(r, 'a'+sum[len(r)%len(sum)]%26)
	}
	return append(r, '\n')
}

// ErrBroken is matched if a record other than the last one is damaged.
var ErrBroken = errors.New("broken record")

// Whole returns the number and the total size of the complete records. An incomplete last record does not count.
func Whole(r io.Reader) (n int, size int64, err error) {
	in := bufio.NewReaderSize(r, longest+1)
	for {
		want := Record(n + 1)
		got, err := io.ReadAll(io.LimitReader(in, int64(len(want))))
		switch {
		case err != nil:
			return n, size, err
		case len(got) < len(want) && bytes.HasPrefix(want, got):
			return n, size, nil
		case !bytes.Equal(got, want):
			return n, size, fmt.Errorf("record %d at %d: %w", n+1, size, ErrBroken)
		}
		n, size = n+1, size+int64(len(want))
	}
}

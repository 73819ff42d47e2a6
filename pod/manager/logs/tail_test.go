package logs

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// counting counts the bytes that are read of a log.
type counting struct {
	io.ReaderAt
	bytes int
}

func (c *counting) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, at)
	c.bytes += n
	return n, err
}

const tailStamp = "2026-01-02T03:04:05.000000000Z "

func TestTail(t *testing.T) {
	a, b, c := tailStamp+"stdout F a\n", tailStamp+"stderr F b\n", tailStamp+"stdout F c\n"
	part, rest := tailStamp+"stdout P "+strings.Repeat("x", 16<<10)+"\n", tailStamp+"stdout F rest\n"
	for _, tc := range []struct {
		name, log string
		n         int64
		want      string
	}{
		{"an empty log", "", 5, ""},
		{"none", a + b, 0, ""},
		{"one", a + b + c, 1, c},
		{"two", a + b + c, 2, b + c},
		{"all", a + b + c, 3, a + b + c},
		{"more than there are", a + b + c, 9, a + b + c},
		{"a split line counts once", a + part + part + rest + b, 2, part + part + rest + b},
		{"an unfinished line", a + b + part + part, 1, part + part},
		{"a partial line does not count", a + b + "2026-01-02T03", 1, b + "2026-01-02T03"},
		{"an empty line of output", a + tailStamp + "stdout F \n" + b, 2, tailStamp + "stdout F \n" + b},
		{"text in another format does not count", a + "\nnonsense\n" + b, 2, a + "\nnonsense\n" + b},
		{"a tag of several parts", a + tailStamp + "stdout F:x tagged\n", 1, tailStamp + "stdout F:x tagged\n"},
	} {
		at, err := tailOffset(strings.NewReader(tc.log), int64(len(tc.log)), tc.n)
		if err != nil || tc.log[at:] != tc.want {
			t.Errorf("%s: %.100q, %v; want %.100q", tc.name, tc.log[at:], err, tc.want)
		}
	}
}

// TestTailReadsTheEndOnly: tailOffset reads a bounded part of a log of many blocks, for every position of a block's
// border in a line.
func TestTailReadsTheEndOnly(t *testing.T) {
	var log strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&log, "%sstdout F line %d\n", tailStamp, i)
	}
	text := log.String()
	for _, n := range []int64{1, 10, 1000} {
		for cut := range 60 {
			f := &counting{ReaderAt: strings.NewReader(text)}
			at, err := tailOffset(f, int64(len(text)-cut), n)
			if err != nil {
				t.Fatal(err)
			}
			// A log that is cut in a line ends with the line before.
			whole := text[:len(text)-cut]
			lines := int64(strings.Count(whole[at:], "\n"))
			if lines != n || at > 0 && text[at-1] != '\n' {
				t.Fatalf("the last %d, %d bytes cut: %d lines from %d", n, cut, lines, at)
			}
			if most := int(n)*(headerSize+60) + 2*tailBlock; f.bytes > most {
				t.Fatalf("the last %d: %d bytes were read, more than %d", n, f.bytes, most)
			}
		}
	}
}

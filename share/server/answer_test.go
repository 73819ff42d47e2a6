package server

import (
	"encoding/binary"
	"testing"

	protocol "github.com/bulkhead-project/bulkhead/share/fsys/wire"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// TestReplySize: a request gets the space that it asks for, and never more than the longest answer.
func TestReplySize(t *testing.T) {
	request := func(op uint32, length, at int, size uint32) []byte {
		b := make([]byte, length)
		binary.NativeEndian.PutUint32(b[4:], op)
		if at > 0 {
			binary.NativeEndian.PutUint32(b[at:], size)
		}
		return b
	}
	const least, others = protocol.Overhead, largest
	for name, tt := range map[string]struct {
		request []byte
		want    int
	}{
		"a lookup":              {request(1, 60, 0, 0), others},
		"a read":                {request(opRead, 80, readSize, 4096), least + 4096},
		"a read of too much":    {request(opRead, 80, readSize, 1<<32-1), least + wire.MaxData},
		"a read that is cut":    {request(opRead, 58, 0, 0), others},
		"a listing":             {request(opReaddirPlus, 80, readSize, 100), least + 100},
		"an attribute":          {request(opGetXattr, 60, xattrSize, 65536), least + 65536},
		"an attribute, cut off": {request(opListXattr, 40, 0, 0), others},
	} {
		if got := replySize(tt.request); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

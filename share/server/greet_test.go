package server

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/channel/frame"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/share/fsys"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// fuseRequest returns a request for the root with that opcode and number, and a body of that size.
func fuseRequest(op uint32, unique uint64, body int) []byte {
	b := make([]byte, 40+body)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint32(b[4:], op)
	binary.NativeEndian.PutUint64(b[8:], unique)
	binary.NativeEndian.PutUint64(b[16:], 1)
	return b
}

// TestGreetingFirst: requests directly behind the kernel's greeting are answered like later ones: the forwarder does
// not wait between them.
func TestGreetingFirst(t *testing.T) {
	t.Parallel()
	for range 200 {
		greetOnce(t)
	}
}

func greetOnce(t *testing.T) {
	t.Helper()
	files, err := fsys.New(fsys.Options{Descriptors: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	ours, guests := net.Pipe()
	ended := make(chan error, 1)
	ctx := testdeadline.Context(t, 10*time.Second)
	go func() {
		host, err := wire.Greet(ctx, ours)
		if err == nil {
			defer host.Close()
			err = answer(host, files)
		}
		ended <- err
	}()
	in := frame.NewDecoder(guests, true)
	hello, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	const opInit, opGetattr = 26, 3
	init := fuseRequest(opInit, 2, 64)
	binary.NativeEndian.PutUint32(init[40:], 7)
	binary.NativeEndian.PutUint32(init[44:], 36)
	epoch := hello.Epoch
	out := frame.Append(nil, frame.Answer, epoch, hello.Payload)
	out = frame.Append(out, frame.Data, epoch, init)
	out = frame.Append(out, frame.Data, epoch, fuseRequest(opGetattr, 4, 16))
	if _, err := guests.Write(out); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		reply, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if code := int32(binary.NativeEndian.Uint32(reply.Payload[4:])); code != 0 {
			t.Errorf("request %d: error %d", binary.NativeEndian.Uint64(reply.Payload[8:]), code)
		}
	}
	guests.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

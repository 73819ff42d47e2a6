package server

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/bulkhead-project/bulkhead/channel/frame"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// stuck is a file system that answers requests for attributes only when the test wants.
type stuck struct {
	fuse.RawFileSystem
	from uint64 // the first of them
	let  chan struct{}
}

func (s stuck) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, _ *fuse.AttrOut) fuse.Status {
	if in.NodeId >= s.from {
		<-s.let
	}
	return fuse.OK
}

// TestSlowRequests: slow requests delay neither later ones nor the end.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	const slowest, opInit, opGetattr = 8, 26, 3
	files := stuck{RawFileSystem: fuse.NewDefaultRawFileSystem(), from: 100, let: make(chan struct{})}
	ours, guests := net.Pipe()
	ended := make(chan error, 1)
	ctx := testdeadline.Context(t, 20*time.Second)
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
	epoch := hello.Epoch
	say := func(kind frame.Kind, payload []byte) {
		t.Helper()
		if _, err := guests.Write(frame.Append(nil, kind, epoch, payload)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() (unique uint64) {
		t.Helper()
		reply, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if code := binary.NativeEndian.Uint32(reply.Payload[4:]); code != 0 {
			t.Errorf("error %d", int32(code))
		}
		return binary.NativeEndian.Uint64(reply.Payload[8:])
	}
	say(frame.Answer, hello.Payload)
	init := fuseRequest(opInit, 2, 64)
	binary.NativeEndian.PutUint32(init[40:], 7)
	binary.NativeEndian.PutUint32(init[44:], 36)
	say(frame.Data, init)
	hear()
	// Each round one more request is stuck, beside the earlier ones.
	for i := range uint64(slowest) {
		attributes := func(unique, node uint64) {
			request := fuseRequest(opGetattr, unique, 16)
			binary.NativeEndian.PutUint64(request[16:], node)
			say(frame.Data, request)
		}
		attributes(1000+2*i, files.from+i)
		attributes(10+2*i, 1)
		if got := hear(); got != 10+2*i {
			t.Fatalf("round %d: request %d is answered", i, got)
		}
	}
	close(files.let)
	for range slowest {
		if got := hear(); got < 1000 {
			t.Errorf("request %d is answered again", got)
		}
	}
	guests.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

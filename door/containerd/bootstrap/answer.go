package bootstrap

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Form is the form of the answer to Start.
type Form int

// The forms, by the versions of containerd that want them.
const (
	Plain    Form = iota // 1.6 and 1.7
	JSON                 // 2.0 to 2.2
	Protobuf             // 2.3 and up
)

// apiVersion is the version of the shim API. Containerd 2 lets later containers of a sandbox join a front of version 3
// without running the program.
const apiVersion = 3

// protocol is the only protocol of a front.
const protocol = "ttrpc"

// FormFor returns the form that the caller wants. The variable MAX_SHIM_VERSION does not help, because every version
// from 2.0 on sets it to 2. For versions before 2.3, the Go build information of containerd's program decides. Reading it takes
// 0.2 ms. A program without it gets the plain form, which every version accepts.
func FormFor(p Params, publish string) Form {
	if p.Modern {
		return Protobuf
	}
	info, err := buildinfo.ReadFile(publish)
	if err != nil {
		return Plain
	}
	// Programs that contain containerd, such as k3s, have it among their dependencies.
	const module = "github.com/containerd/containerd/v2"
	if strings.HasPrefix(info.Path, module+"/") || info.Main.Path == module {
		return JSON
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return JSON
		}
	}
	return Plain
}

// WriteAddress answers Start with the address of the front.
func WriteAddress(w io.Writer, form Form, address string) error {
	var b []byte
	var err error
	switch form {
	case Protobuf:
		// Without the extension MountCapabilities, containerd's mount manager makes all mounts that need it.
		b, err = proto.Marshal(&bootapi.BootstrapResult{Version: apiVersion, Address: address, Protocol: protocol})
	case JSON:
		b, err = json.Marshal(map[string]any{"version": apiVersion, "address": address, "protocol": protocol})
	default:
		b = []byte(address)
	}
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("answer with the address: %w", err)
	}
	return nil
}

// WriteExit answers Delete.
func WriteExit(w io.Writer, e Exit) error {
	b, err := proto.Marshal(&taskv3.DeleteResponse{
		Pid: uint32(e.PID), ExitStatus: uint32(e.Status), ExitedAt: timestamppb.New(e.At),
	})
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("answer with the exit: %w", err)
	}
	return nil
}

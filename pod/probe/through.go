package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Through returns a Dialer that uses dial instead of the pod's address, which is ip or empty. If an error of dial
// matches syscall.ECONNREFUSED, no process listens. The codes Unavailable, FailedPrecondition and NotFound mean that
// the pod could not be reached.
func Through(dial Dialer, ip string) Dialer {
	return func(ctx context.Context, port int) (net.Conn, error) {
		conn, err := dial(ctx, port)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			// As if the host could reach the pod's address.
			return nil, &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: port},
				Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
			}
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.FailedPrecondition, codes.NotFound:
			return nil, fmt.Errorf("%w: %w", ErrNotAsked, err)
		}
		return nil, err
	}
}

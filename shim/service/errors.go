package service

import (
	"errors"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// toStatus converts err to a status with the code that clients match, which containerd's errdefs convert to its own
// errors. Nil stays nil.
func toStatus(err error) error {
	if errors.Is(err, net.ErrClosed) && grpccode.Of(err) == codes.Unknown {
		return status.Error(codes.Unavailable, err.Error())
	}
	return grpccode.Status(err)
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

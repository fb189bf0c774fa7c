"""An sshd that accepts every user, and then sends packets of an unknown type without end.

It prints its port. The argument is the message after which it floods: `userauth` or `exec`. With
`refuses TEXT` it accepts nobody, and names TEXT as the methods that it offers.
"""
import ctypes
import ctypes.util
import hashlib
import hmac
import os
import socket
import struct
import subprocess
import sys

# numbers of messages (RFC 4250, 4.1.2), and one that nobody has
KEXINIT, NEWKEYS, KEXDH_INIT, KEXDH_REPLY = 20, 21, 30, 31
SERVICE_REQUEST, SERVICE_ACCEPT = 5, 6
USERAUTH_REQUEST, USERAUTH_FAILURE, USERAUTH_SUCCESS = 50, 51, 52
CHANNEL_OPEN, CHANNEL_CONFIRMATION, CHANNEL_REQUEST, CHANNEL_SUCCESS = 90, 91, 98, 99
UNKNOWN = 200

# the prime of diffie-hellman-group14-sha256 (RFC 3526, 3)
PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF", 16)
ALGORITHMS = [b"diffie-hellman-group14-sha256", b"rsa-sha2-256", b"aes128-ctr", b"aes128-ctr",
              b"hmac-sha2-256", b"hmac-sha2-256", b"none", b"none", b"", b""]
BLOCK, MAC = 16, 32

crypto = ctypes.CDLL(ctypes.util.find_library("crypto") or "libcrypto.so.3")
crypto.EVP_CIPHER_CTX_new.restype = ctypes.c_void_p
crypto.EVP_aes_128_ctr.restype = ctypes.c_void_p


def cipher(key, start):
    context = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
    crypto.EVP_EncryptInit_ex(context, ctypes.c_void_p(crypto.EVP_aes_128_ctr()), None, key, start)

    def apply(data):
        out, count = ctypes.create_string_buffer(len(data) + BLOCK), ctypes.c_int()
        crypto.EVP_EncryptUpdate(context, out, ctypes.byref(count), data, len(data))
        return out.raw[:count.value]
    return apply


def string(data):
    return struct.pack(">I", len(data)) + data


def mpint(number):
    return string(number.to_bytes(number.bit_length() // 8 + 1, "big"))


def openssl(*words, input=b""):
    return subprocess.run(["openssl", *words], input=input, check=True, capture_output=True).stdout


class Connection:
    def __init__(self, tool):
        self.tool, self.file = tool, tool.makefile("rb")
        self.sent, self.keys_out, self.keys_in = 0, None, None

    def packet(self, payload):
        padding = BLOCK - (5 + len(payload)) % BLOCK
        padding += BLOCK if padding < 4 else 0
        data = struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)
        if self.keys_out:
            encrypt, key = self.keys_out
            mac = hmac.digest(key, struct.pack(">I", self.sent) + data, "sha256")
            data = encrypt(data) + mac
        self.sent += 1
        return data

    def send(self, *payloads):
        self.tool.sendall(b"".join(map(self.packet, payloads)))

    def receive(self):
        decrypt = self.keys_in or (lambda data: data)
        head = decrypt(self.file.read(BLOCK if self.keys_in else 8))
        length, = struct.unpack(">I", head[:4])
        data = head + decrypt(self.file.read(4 + length - len(head)))
        self.file.read(MAC if self.keys_in else 0)
        return data[5:4 + length - data[4]]

    def exchange_keys(self):
        version = b"SSH-2.0-flooding"
        self.tool.sendall(version + b"\r\n")
        version_of_tool = self.file.readline().rstrip(b"\r\n")
        ours = bytes([KEXINIT]) + os.urandom(16) + b"".join(map(string, ALGORITHMS)) + bytes(5)
        self.send(ours)
        theirs = self.receive()
        message = self.receive()
        assert message[0] == KEXDH_INIT
        public_of_tool = int.from_bytes(message[5:], "big")
        secret = int.from_bytes(os.urandom(32), "big")
        public, shared = pow(2, secret, PRIME), mpint(pow(public_of_tool, secret, PRIME))
        hashed = b"".join(map(string, [version_of_tool, version, theirs, ours, HOST_KEY]))
        hashed += mpint(public_of_tool) + mpint(public) + shared
        session = hashlib.sha256(hashed).digest()
        signature = openssl("dgst", "-sha256", "-sign", "host.pem", input=session)
        signature = string(string(b"rsa-sha2-256") + string(signature))
        self.send(bytes([KEXDH_REPLY]) + string(HOST_KEY) + mpint(public) + signature)
        self.send(bytes([NEWKEYS]))
        while self.receive()[0] != NEWKEYS:
            pass
        key = lambda letter: hashlib.sha256(shared + session + letter + session).digest()
        self.keys_out = cipher(key(b"D")[:16], key(b"B")[:16]), key(b"F")
        self.keys_in = cipher(key(b"C")[:16], key(b"A")[:16])

    def flood(self):
        while True:
            self.send(*[bytes([UNKNOWN]) + bytes(32000)] * 30)

    def serve(self, floods_after):
        self.exchange_keys()
        while True:
            message = self.receive()
            if message[0] == SERVICE_REQUEST:
                self.send(bytes([SERVICE_ACCEPT]) + message[1:])
            elif message[0] == USERAUTH_REQUEST:
                if floods_after == "userauth":
                    self.flood()
                if floods_after == "refuses":
                    self.send(bytes([USERAUTH_FAILURE]) + string(sys.argv[2].encode()) + b"\0")
                    continue
                self.send(bytes([USERAUTH_SUCCESS]))
            elif message[0] == CHANNEL_OPEN:
                self.send(struct.pack(">BIIII", CHANNEL_CONFIRMATION, 0, 0, 1 << 21, 1 << 15))
            elif message[0] == CHANNEL_REQUEST:
                self.send(struct.pack(">BI", CHANNEL_SUCCESS, 0))
                if message[5:].startswith(string(b"exec")):
                    self.flood()


openssl("genrsa", "-out", "host.pem", "2048")
modulus = openssl("rsa", "-in", "host.pem", "-noout", "-modulus").split(b"=")[1]
HOST_KEY = string(b"ssh-rsa") + mpint(65537) + mpint(int(modulus, 16))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    tool, _ = listener.accept()
    try:
        Connection(tool).serve(sys.argv[1])
    except (OSError, struct.error):
        pass

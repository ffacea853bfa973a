"""Encrypt payloads on the client: the server and its database see nothing but ciphertext.

Client and worker get the same codec; ``pip install cryptography`` gives the cipher. Start a server
with ``tenure dev``, then ``python encryption.py`` runs a worker and a task of its own.
"""

import asyncio
import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tenure import Client, Payload, Worker, activity

NONCE_BYTES = 12


class EncryptingCodec:
    """AES-GCM with a fresh nonce per payload; the encoding is authenticated with the data."""

    prefix = "aes-gcm:"

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encode(self, payload: Payload) -> Payload:
        encoding = self.prefix + payload.encoding
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, payload.data, encoding.encode())
        return Payload(encoding, nonce + sealed)

    def decode(self, payload: Payload) -> Payload:
        if not payload.encoding.startswith(self.prefix):
            return payload
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        data = self._cipher.decrypt(nonce, sealed, payload.encoding.encode())
        return Payload(payload.encoding.removeprefix(self.prefix), data)


@activity(start_to_close="30s", queue="private")
def write_letter(patient: str) -> str:
    return f"Dear {patient}, all is well."


async def main(key: bytes) -> None:
    codec = EncryptingCodec(key)
    worker = Worker(activities=[write_letter], queue="private", codec=codec)
    working = asyncio.create_task(worker.run())
    async with Client(codec=codec) as client:
        print(await client.run(write_letter, "Ann"))
    await worker.shutdown()
    await working


if __name__ == "__main__":
    # In production both sides read the key from a secret store; this example makes a new one.
    asyncio.run(main(AESGCM.generate_key(bit_length=256)))
